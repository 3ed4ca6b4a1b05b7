"""Compiles what is faster compiled, where there is a C compiler.

Kernels (Cython): the few loops that run once per record.  Native: threads that work without the interpreter; where
nothing is compiled they are left out.  Rooms (mypyc): plain modules on the way of every request, which run interpreted
wherever they are not compiled, and so in an editable installation: there a change of the source counts at once.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src/odradek")
KERNELS = SOURCE / "record" / "kernels"
NATIVE = SOURCE / "net" / "native"
# Compiled together, so that they call each other as C functions do.  A class that others inherit from is compiled with
# all of its heirs; one that inherits from a type written in C, or from OSError, is not.
ROOMS = {
    "api": "answer_marks call commit_outlines conversation dispatch fetch fetch_outlines gate large_produce learned"
    " outcome outlines parts plain_commit plain_fetch plain_produce produce",
    "app": "request_log",
    "core": "broker fetch_sessions ingress lookups parked partition positions promise staging timers",
    "log": "arrival index log segment",
    "net": "connection descriptors door listener outbox readers receiving secure secure_outbox shell traffic",
    "record": "batch",
    "wire": "budget connection request response",
}
WANTED = "ODRADEK_ROOMS"
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
    return list(cythonize(modules, include_path=["src"], compiler_directives=DIRECTIVES))


def rooms() -> list[Extension]:
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    paths = [str(SOURCE / folder / f"{name}.py") for folder, names in ROOMS.items() for name in names.split()]
    options = ["--config-file=pyproject.toml", "--no-incremental"]
    return mypycify(
        [*options, *paths], opt_level="2", debug_level="0", multi_file=True, target_dir="build/rooms", group_name="odradek"
    )


class Build(build_ext):
    def finalize_options(self) -> None:
        if os.environ.get(WANTED) == "1" and not (self.editable_mode or self.inplace):
            self.distribution.ext_modules += rooms()
        super().finalize_options()
        for one in self.extensions:  # Said here, since cythonize makes new extensions and forgets it.
            one.optional = True
        self.parallel = self.parallel or os.cpu_count()


setup(ext_modules=extensions(), cmdclass={"build_ext": Build})
