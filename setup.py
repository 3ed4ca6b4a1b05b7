"""Compiles the record kernels where there is a C compiler; the same source runs interpreted where there is none."""

from pathlib import Path

from setuptools import Extension, setup

KERNELS = Path("src/odradek/record/kernels")
# Types come from the .pxd files, so the annotations, which are mypy's, must not be taken for C types.
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
}


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(
            f"odradek.record.kernels.{path.stem}",
            [str(path)],
            depends=[str(declarations) for declarations in sorted(KERNELS.glob("*.pxd"))],
            extra_compile_args=["-O3", "-fwrapv"],
        )
        for path in sorted(KERNELS.glob("[!_]*.py"))
    ]
    compiled = list(cythonize(modules, include_path=["src"], compiler_directives=DIRECTIVES))
    for module in compiled:  # Said here, since cythonize makes new extensions and forgets it.
        module.optional = True
    return compiled


setup(ext_modules=extensions())
