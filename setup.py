"""Compiles what is faster compiled, where there is a C compiler.

The record kernels run interpreted where there is none, and threads that work without the interpreter are left out.
"""

from pathlib import Path

from setuptools import Extension, setup

KERNELS = Path("src/odradek/record/kernels")
NATIVE = Path("src/odradek/net/native")
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
    modules += [
        Extension(
            f"odradek.net.native.{path.stem}",
            [str(path)],
            depends=[str(header) for header in NATIVE.glob("*.h")],
            extra_compile_args=["-O3", "-pthread", "-D_GNU_SOURCE"],
        )
        for path in sorted(NATIVE.glob("*.pyx"))
    ]
    compiled = list(cythonize(modules, include_path=["src"], compiler_directives=DIRECTIVES))
    for module in compiled:  # Said here, since cythonize makes new extensions and forgets it.
        module.optional = True
    return compiled


setup(ext_modules=extensions())
