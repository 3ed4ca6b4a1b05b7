"""JAAS files: what is read of them, and what is said of one that can't be."""

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


def test_sections_modules_and_options() -> None:
    found = parse_jaas(TEXT, "f")
    assert list(found) == ["KafkaServer", "Client", "Empty"] and not found["Empty"]
    plain, other = found["KafkaServer"]
    assert plain.options == {"username": "a", "user_a": "b"}
    assert (other.class_name, other.options) == ("com.example.Other", {"debug": "true", "useKeyTab": "false"})
    (client,) = found["Client"]
    assert client.options == {"username": "kafka", "password": 's; {} "q" \\ // ${x}'}
    assert not parse_jaas("", "f")


def test_no_text_of_a_module_shows_a_password() -> None:
    assert "kafka" not in repr(parse_jaas(TEXT, "f")["Client"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Client", "Line 1 of the JAAS file f is not understood: { is missing."),
        (
            "Client {\n a.B required",
            "Line 2 of the JAAS file f is not understood: the name of an option, or ; is missing.",
        ),
        ("Client {\n a.B maybe;\n};", "Line 2 of the JAAS file f is not understood: one of required, requisite, "),
        ("Client {\n a.B required x;\n};", "Line 2 of the JAAS file f is not understood: = is missing."),
        ("Client {\n a.B required x=;\n};", "Line 2 of the JAAS file f is not understood: the value of an option is"),
        ("Client {\n a.B required;\n}\n", "Line 3 of the JAAS file f is not understood: ; is missing."),
        ("{}", "Line 1 of the JAAS file f is not understood: the name of a section is missing."),
        ('Client {\n a.B required x="secret;\n};', 'Line 2 of the JAAS file f has a " that nothing ends.'),
    ],
)
def test_what_is_not_understood_is_said_without_its_text(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_jaas(text, "f")
    assert str(raised.value).startswith(sentence)
    assert "secret" not in str(raised.value)


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The JAAS file .*/none can't be read: no such file or directory\."):
        read_jaas(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"The JAAS file .*/binary can't be read: it is no text in UTF-8\."):
        read_jaas(tmp_path / "binary")
