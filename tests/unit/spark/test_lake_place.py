"""Where a lake may lie, and how its store is reached."""

import pickle

import pytest

from odradek.spark.lake_place import BadPlace, Place


def test_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("lake", "./lake", tmp_path / "lake", f"file://{tmp_path}/lake", f"file:{tmp_path}/lake"):
        assert Place.of(text).folder == tmp_path / "lake"
    assert Place.of("./s3:/x").folder == tmp_path / "s3:" / "x"
    assert Place.of(tmp_path / "a b%20c").folder == tmp_path / "a b%20c"
    assert Place.of(f"file://{tmp_path}/a%20b").folder == tmp_path / "a b"


@pytest.mark.parametrize(
    "text", ["dbfs:/x", "foo://bucket/x", "s3:bucket/x", "s3:/bucket/x", "s3://", "s3:///x", "gs://b/x", "S4://b/x"]
)
def test_what_is_neither_a_folder_nor_a_bucket_is_refused_in_one_sentence(text):
    with pytest.raises(BadPlace) as refused:
        Place.of(text)
    assert repr(text) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_with_settings_of_a_store_is_most_likely_meant_to_be_a_bucket():
    with pytest.raises(BadPlace, match="Is s3:// missing"):
        Place.of("lakes/flights", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})


def test_buckets(monkeypatch):
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


def test_an_endpoint_of_ones_own_needs_no_more_than_its_keys(monkeypatch):
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
def test_an_endpoint_that_is_no_address_is_refused(endpoint):
    with pytest.raises(BadPlace, match="use http://host:port") as refused:
        Place.of("s3://b/x", {"AWS_ENDPOINT_URL": endpoint})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"])
def test_a_setting_with_the_line_end_of_the_file_it_was_in_is_refused_and_not_shown(name):
    with pytest.raises(BadPlace, match=f"setting {name} contains an invalid character") as refused:
        Place.of("s3://b/x", {name: "secret\n"})
    assert "secret" not in str(refused.value)


def test_what_would_make_concurrent_commits_unsafe_is_refused(monkeypatch):
    with pytest.raises(BadPlace, match="overwrite each other"):
        Place.of("s3://b/x", {"aws_s3_allow_unsafe_rename": "true"})
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(BadPlace, match="overwrite each other"):
        Place.of("s3://b/x")
    assert Place.of("s3://b/x", {"AWS_S3_ALLOW_UNSAFE_RENAME": "false"})
