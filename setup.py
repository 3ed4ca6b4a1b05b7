"""Compiles what is faster compiled, where a C compiler works; that is found out first, as mypyc alone takes 12 s.

Kernels (Cython): the few loops that run once per record.  Native: threads that work without the interpreter; where
nothing is compiled they are left out.  Rooms (mypyc): plain modules on the way of every request.  They are not compiled
in an editable installation, where a change of the source counts at once, nor with ODRADEK_ROOMS=0.
"""

import os
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, PlatformError

SOURCE = Path("src/odradek")
KERNELS = SOURCE / "record" / "kernels"
NATIVE = SOURCE / "net" / "native"
CHECKSUM = KERNELS / "crc32c.h"
# Compiled together, so that they call each other as C functions do.  A class is compiled with all of its heirs, and has
# no base written in C, and no slots (tests/unit/test_rooms.py).
ROOMS = {
    "api": "conversation dispatch",
    "api/cluster": "follower_requests",
    "api/fetch": "delayed_fetch fetch fetch_params fetch_read fetch_response follower_fetch plain_fetch",
    "api/groups": "plain_commit",
    "api/produce": "large_produce plain_produce produce produce_acks produce_admission produce_in_slices"
    " produce_staging",
    "api/request": "admission call gate outcome sliced_response",
    "api/templates": "commit_template fetch_template produce_template template_cache",
    "app/logging": "request_log",
    "core/broker": "broker coordinators metadata_change_requests replicas",
    "core/disks": "flushes",
    "core/fetch": "fetch_sessions",
    "core/kernel": "promise purgatory timers",
    "core/partition": "alter_partition_manager follower_states in_sync_replicas ingress leadership_state leading"
    " local_replica lookups partition positions replica_selector staging",
    "core/replication": "follower follower_log replica_fetcher replica_fetcher_manager",
    "log/log": "arrival durability durability_state log streaming_append",
    "log/segment": "index segment segment_slices",
    "net/clients": "acceptor client_connection listener receiving_transport secure_connection secure_outbox",
    "net/loop": "active_connections broker_timer descriptors group_commit readers traffic",
    "net/shell": "completed_requests effect_executor outbox shell",
    "record": "record_batch",
    "wire": "budget connection request response template",
    "wire/schema": "varint",
}
SHARED_BY_ROOMS = "odradek"  # mypyc's module of all their code.
# Types come from the .pxd files, so the annotations, which are mypy's, must not be taken for C types.
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
}


PROBE = "#include <Python.h>\nint odradek_probe(void) { return PY_MAJOR_VERSION; }\n"


def extensions() -> list[Extension]:
    """Return the kernels and native modules, not yet cythonized: metadata is asked for without them being built."""
    modules = [
        Extension(
            f"odradek.record.kernels.{path.stem}",
            [str(path)],
            depends=[str(declarations) for declarations in [*sorted(KERNELS.glob("*.pxd")), CHECKSUM]],
            extra_compile_args=["-O3", "-fwrapv"],
        )
        for path in sorted(KERNELS.glob("[!_]*.py"))
    ]
    return modules + [
        Extension(
            f"odradek.net.native.{path.stem}",
            [str(path)],
            depends=[str(CHECKSUM)],
            extra_compile_args=["-O3", "-pthread", "-D_GNU_SOURCE"],
        )
        for path in sorted(NATIVE.glob("*.pyx"))
    ]


def cythonized(modules: list[Extension]) -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    return list(cythonize(modules, include_path=["src"], compiler_directives=DIRECTIVES))


def rooms() -> list[Extension]:
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    paths = [str(SOURCE / folder / f"{name}.py") for folder, names in ROOMS.items() for name in names.split()]
    # Not as strictly as scripts/test does it: a later mypy may know more, and less is installed where this is built.
    options = ["--config-file=", "--ignore-missing-imports", "--no-incremental"]
    os.environ["MYPYPATH"] = "src"
    try:
        made = mypycify(
            [*options, *paths],
            opt_level="2",
            debug_level="0",
            multi_file=True,
            target_dir="build/rooms",
            group_name=SHARED_BY_ROOMS,
        )
    except SystemExit:
        sys.stderr.write("mypyc did not take the rooms; they will run interpreted\n")
        return []
    return list(made)


class Build(build_ext):
    def finalize_options(self) -> None:
        super().finalize_options()
        for one in self.extensions:  # Said here, since cythonize makes new extensions and forgets it.
            one.optional = True
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        self.remove_earlier()
        if not self.has_compiler():
            return
        made = [] if self.editable_mode or self.inplace or os.environ.get("ODRADEK_ROOMS") == "0" else rooms()
        # Not before: options are finalized for whoever asks for the metadata, too.  In place: it is the distribution's
        # list, which finalizing takes again.
        self.extensions[:] = cythonized(self.extensions) + made
        self.swig_opts = None  # As it was before: it is read once more.
        self.finalize_options()
        super().run()
        for together in (made, [one for one in self.extensions if one.name.startswith("odradek.record.kernels.")]):
            built = [Path(self.get_ext_fullpath(one.name)) for one in together]
            if not all(path.exists() for path in built):
                for path in built:  # One needs the other.
                    path.unlink(missing_ok=True)

    def has_compiler(self) -> bool:
        """Return True if the smallest module can be compiled and linked; else say so, as nothing will be compiled."""
        from distutils.ccompiler import new_compiler  # After setuptools, which has its own distutils.
        from distutils.sysconfig import customize_compiler

        compiler = new_compiler(compiler=self.compiler)
        customize_compiler(compiler)
        with TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE)
            try:
                objects = compiler.compile([str(source)], output_dir=folder, include_dirs=self.include_dirs)
                compiler.link_shared_object(objects, str(Path(folder, "probe.so")))
            except (CCompilerError, PlatformError):
                name = compiler.compiler_so[0]
                sys.stderr.write(f"{name} does not compile a module with Python.h: Odradek will run interpreted\n")
                return False
        return True

    def remove_earlier(self) -> None:
        """Removes what an earlier build compiled: Python would import it, and not the newer source beside it."""
        folder = Path("src" if self.inplace else self.build_lib)
        ending = sysconfig.get_config_var("EXT_SUFFIX")
        for path in [*folder.glob(f"odradek/**/*{ending}"), *folder.glob(f"{SHARED_BY_ROOMS}__mypyc{ending}")]:
            path.unlink()


setup(ext_modules=extensions(), cmdclass={"build_ext": Build})
