"""JAAS files: the parsed content, and errors of invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.app.config.jaas import parse_jaas, read_jaas
from odradek.core.configs.definition import ConfigError

TEXT = """
/* For a broker;
   Client { is in a comment } */
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" user_a="b";
    com.example.Other OPTIONAL debug=true useKeyTab = false;
};
Client { // For ZooKeeper.
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="kafka"
    password="s; {} \\"q\\" \\\\ // ${x}";
};
Empty {};
"""


def test_sections_modules_and_options_are_parsed() -> None:
    found = parse_jaas(TEXT, "f")
    assert list(found) == ["KafkaServer", "Client", "Empty"] and not found["Empty"]
    plain, other = found["KafkaServer"]
    assert plain.options == {"username": "a", "user_a": "b"}
    assert (other.class_name, other.options) == ("com.example.Other", {"debug": "true", "useKeyTab": "false"})
    (client,) = found["Client"]
    assert client.options == {"username": "kafka", "password": 's; {} "q" \\ // ${x}'}
    assert not parse_jaas("", "f")


def test_repr_of_a_module_shows_no_password() -> None:
    assert "kafka" not in repr(parse_jaas(TEXT, "f")["Client"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Client", "Invalid JAAS file f: expected { in line 1."),
        (
            "Client {\n a.B required",
            "Invalid JAAS file f: expected an option name or ; in line 2.",
        ),
        ("Client {\n a.B maybe;\n};", "Invalid JAAS file f: expected one of required, requisite, "),
        ("Client {\n a.B required x;\n};", "Invalid JAAS file f: expected = in line 2."),
        ("Client {\n a.B required x=;\n};", "Invalid JAAS file f: expected an option value in line 2."),
        ("Client {\n a.B required;\n}\n", "Invalid JAAS file f: expected ; in line 3."),
        ("{}", "Invalid JAAS file f: expected a section name in line 1."),
        ('Client {\n a.B required x="secret;\n};', 'Invalid JAAS file f: unterminated " in line 2.'),
    ],
)
def test_syntax_error_is_reported_without_the_text(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_jaas(text, "f")
    assert str(raised.value).startswith(sentence)
    assert "secret" not in str(raised.value)


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read the JAAS file .*/none: no such file or directory\."):
        read_jaas(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"Cannot read the JAAS file .*/binary: it is not valid UTF-8\."):
        read_jaas(tmp_path / "binary")
