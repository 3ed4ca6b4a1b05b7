"""Valid locations of a lake, and access to object stores."""

import pickle

import pytest

from odradek.spark.lake_location import BadPlace, Place


def test_folder_is_parsed_from_paths_and_file_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("lake", "./lake", tmp_path / "lake", f"file://{tmp_path}/lake", f"file:{tmp_path}/lake"):
        assert Place.of(text).folder == tmp_path / "lake"
    assert Place.of("./s3:/x").folder == tmp_path / "s3:" / "x"
    assert Place.of(tmp_path / "a b%20c").folder == tmp_path / "a b%20c"
    assert Place.of(f"file://{tmp_path}/a%20b").folder == tmp_path / "a b"


@pytest.mark.parametrize(
    "text", ["dbfs:/x", "foo://bucket/x", "s3:bucket/x", "s3:/bucket/x", "s3://", "s3:///x", "gs://b/x", "S4://b/x"]
)
def test_invalid_location_is_refused_with_one_sentence(text):
    with pytest.raises(BadPlace) as refused:
        Place.of(text)
    assert repr(text) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_folder_with_object_store_settings_is_refused():
    with pytest.raises(BadPlace, match="Is s3:// missing"):
        Place.of("lakes/flights", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})


def test_bucket_takes_settings_from_options_and_environment(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    place = pickle.loads(
        pickle.dumps(Place.of("s3a://bucket/some/lake/", {"aws_region": "eu-west-1", "timeout": "5s"}))
    )
    assert (place.uri, place.folder) == ("s3a://bucket/some/lake", None)
    assert place.storage["AWS_ACCESS_KEY_ID"] == "of the environment"
    assert place.storage["aws_region"] == "eu-west-1"
    assert "AWS_REGION" not in place.storage, "what is given wins, in whatever case"
    assert "AWS_ALLOW_HTTP" not in place.storage
    assert "of the environment" not in repr(place), "it may be a secret"


def test_custom_endpoint_has_default_region_and_http_setting(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    plain = Place.of("s3://b/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}).storage
    assert (plain["AWS_ALLOW_HTTP"], plain["AWS_REGION"]) == ("true", "us-east-1")
    assert "AWS_ALLOW_HTTP" not in Place.of("s3://b/x", {"AWS_ENDPOINT_URL": "https://127.0.0.1:9000"}).storage
    assert Place.of("s3://b/x", {"endpoint": "http://h", "allow_http": "false"}).storage["allow_http"] == "false"


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:9000",
        "garbage",
        "http://",
        "http://host:port",
        "http://host:99999",
        "s3://host",
        "http://a b",
        "http://a%zz",
    ],
)
def test_invalid_endpoint_is_refused(endpoint):
    with pytest.raises(BadPlace, match="use http://host:port") as refused:
        Place.of("s3://b/x", {"AWS_ENDPOINT_URL": endpoint})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"])
def test_setting_with_a_trailing_newline_is_refused_without_showing_it(name):
    with pytest.raises(BadPlace, match=f"setting {name} contains an invalid character") as refused:
        Place.of("s3://b/x", {name: "secret\n"})
    assert "secret" not in str(refused.value)


def test_unsafe_rename_setting_is_refused(monkeypatch):
    with pytest.raises(BadPlace, match="overwrite each other"):
        Place.of("s3://b/x", {"aws_s3_allow_unsafe_rename": "true"})
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(BadPlace, match="overwrite each other"):
        Place.of("s3://b/x")
    assert Place.of("s3://b/x", {"AWS_S3_ALLOW_UNSAFE_RENAME": "false"})
