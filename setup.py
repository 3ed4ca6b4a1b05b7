"""Compiles the record kernels where there is a C compiler; the same source runs interpreted where there is none."""

from pathlib import Path

from setuptools import Extension, setup

KERNELS = Path("src/odradek/record/kernels")


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(f"odradek.record.kernels.{path.stem}", [str(path)], optional=True, extra_compile_args=["-O3"])
        for path in sorted(KERNELS.glob("[!_]*.py"))
    ]
    return list(cythonize(modules, language_level=3))


setup(ext_modules=extensions())
