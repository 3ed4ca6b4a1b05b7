"""Command tree, and the only place that turns an error into a sentence and an exit status.

Only the requested verb is imported. Help and usage errors load the whole tree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer
from typer.main import get_command

from odradek.app.commands import serve_command as serve
from odradek.app.terminal.command_failed import FAILED, USAGE_ERROR, CommandFailed, sentence_of, status_of
from odradek.app.terminal.compiled import version_line
from odradek.app.terminal.interrupts import InterruptBlock

# Typer's exception for usage errors; its name in typer differs between versions.
UsageError: type[Exception] = cast(type[Exception], typer.BadParameter.__mro__[1])

DONE, PIPE_CLOSED, INTERRUPTED = 0, 141, 130

PURPOSE = "Apache Kafka in Python: run a broker, and work with any Kafka cluster."


def show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(version_line())
        raise typer.Exit()


def root(
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Accept the options that precede a verb."""


def serve_command(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="SERVER.PROPERTIES", help="Configuration file with Kafka's keys.", show_default=False),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override", metavar="KEY=VALUE", help="Set one key, with precedence over the file; repeat for more."
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            metavar="",
            help="Allow unauthenticated connections on listeners that other machines can reach.",
        ),
    ] = False,
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="Format of log lines on standard error.")
    ] = "text",
    log_level: Annotated[
        list[str] | None,
        typer.Option(
            "--log-level",
            metavar="[LOGGER=]LEVEL",
            help="Log level, INFO by default; odradek.request=DEBUG logs every request; repeat for more.",
        ),
    ] = None,
    *,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", metavar="N", help="Run a cluster of N brokers on consecutive ports."),
    ] = None,
    member: Annotated[bool, typer.Option("--member", hidden=True)] = False,
) -> int:
    """Run a broker until Ctrl-C or SIGTERM.

    Without a configuration file, the broker listens on 127.0.0.1:9092 and
    stores its data in ./odradek-data.  When it is ready, it prints one line
    for each listener: ready PLAINTEXT://127.0.0.1:9092
    """
    levels = tuple(log_level or ())
    return serve.start(serve.Serve(config, list(override or ()), insecure, log_format, levels, brokers, member))


def add_serve(app: typer.Typer) -> None:
    app.command("serve")(serve_command)


def add_produce(app: typer.Typer) -> None:
    from odradek.app.commands.produce_command import produce

    app.command("produce")(produce)


def add_consume(app: typer.Typer) -> None:
    from odradek.app.commands.consume_command import consume

    app.command("consume")(consume)


def add_load(app: typer.Typer) -> None:
    from odradek.app.commands.load_command import load

    app.command("load")(load)


def add_lake(app: typer.Typer) -> None:
    from odradek.app.commands import lake_command as lake

    app.add_typer(lake.app, name="lake")


def add_topic(app: typer.Typer) -> None:
    from odradek.app.commands import topic_command as topic

    app.add_typer(topic.app, name="topic")


def add_broker(app: typer.Typer) -> None:
    from odradek.app.commands import broker_command as broker

    app.add_typer(broker.app, name="broker")


def add_cluster(app: typer.Typer) -> None:
    from odradek.app.commands import cluster_command as cluster

    app.add_typer(cluster.app, name="cluster")


def add_group(app: typer.Typer) -> None:
    from odradek.app.commands import group_command as group

    app.add_typer(group.app, name="group")


def add_txn(app: typer.Typer) -> None:
    from odradek.app.commands import txn_command as txn

    app.add_typer(txn.app, name="txn")


def add_log(app: typer.Typer) -> None:
    from odradek.app.commands import log_command as log

    app.add_typer(log.app, name="log")


def add_tree(app: typer.Typer) -> None:
    from odradek.app.commands import tree_copy

    app.add_typer(tree_copy.app, name="tree")


def add_doctor(app: typer.Typer) -> None:
    from odradek.app.commands.doctor_command import doctor

    app.command("doctor")(doctor)


VERBS: dict[str, Callable[[typer.Typer], None]] = {
    "serve": add_serve,
    "produce": add_produce,
    "consume": add_consume,
    "load": add_load,
    "lake": add_lake,
    "topic": add_topic,
    "broker": add_broker,
    "cluster": add_cluster,
    "group": add_group,
    "txn": add_txn,
    "log": add_log,
    "tree": add_tree,
    "doctor": add_doctor,
}


def build(verb: str | None) -> typer.Typer:
    """Build the tree with this verb, or with all verbs if it is unknown."""
    app = typer.Typer(
        name="odradek",
        help=PURPOSE,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name, add in VERBS.items():
        if verb not in VERBS or name == verb:
            add(app)
    return app


def run(arguments: Sequence[str]) -> int:
    """Parse and run the command, and print one sentence for an error. Return the exit status."""
    if sys.stdout is None:
        return print_error("odradek: standard output is closed", FAILED)
    command = get_command(build(arguments[0] if arguments else None))
    try:
        with command.make_context("odradek", list(arguments)) as context, InterruptBlock():
            status = command.invoke(context)
        sys.stdout.flush()
        return status if isinstance(status, int) else DONE
    except typer.Exit as typer_exit:
        return typer_exit.exit_code
    except UsageError as error:
        return report_usage_error(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python would report another error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except CommandFailed as error:
        return print_error(f"odradek: {error}", error.status)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise  # A bug: show its traceback.
        return print_error(f"odradek: {sentence}", status_of(error))


def report_usage_error(error: Exception) -> int:
    """Print the usage error on one line with the help command. Return the exit status."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "odradek"
    message = getattr(error, "format_message", error.__str__)()
    if type(error).__name__ == "NoArgsIsHelpError":
        # With rich, typer has already printed the help. Without rich, the message is the help.
        return print_error(message, USAGE_ERROR) if message else USAGE_ERROR
    sentence = " ".join(message.split()).replace(" Value error,", "").rstrip(".")
    return print_error(f"{path}: {sentence}; see {path} --help", USAGE_ERROR)


def print_error(text: str, status: int) -> int:
    sys.stderr.write(text + "\n")
    return status
