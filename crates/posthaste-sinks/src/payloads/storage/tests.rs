use std::fs;

use object_store::Error;

use super::{fault::missing, *};

fn refusal(url: &str) -> String {
    match Storage::open(url) {
        Err(error @ SinkError::Misconfigured { .. }) => error.to_string(),
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn addresses_name_their_objects() {
    for (url, reference) in [
        ("s3://bucket/a/b?region=eu-central-1", "s3://bucket/a/b/d/x"),
        ("s3://bucket", "s3://bucket/d/x"),
        (
            "s3://bucket/a/?endpoint=http://localhost:9000",
            "s3://bucket/a/d/x",
        ),
        ("az://box/a?account=shop", "az://box/a/d/x"),
        (
            "az://box?account=shop&account_key=c2hvcA==&endpoint=http://localhost:10000/shop",
            "az://box/d/x",
        ),
        ("gs://bucket/a", "gs://bucket/a/d/x"),
        ("s3://b?endpoint=HTTP://LOCALHOST:9000/", "s3://b/d/x"),
        ("s3://b?endpoint=http://[::1]:9000/s3", "s3://b/d/x"),
        ("s3://b?endpoint=https://b%C3%BCcher.example", "s3://b/d/x"),
        ("file:///var/a%20b/", "file:///var/a%20b/d/x"),
    ] {
        let storage = Storage::open(url).unwrap();
        assert_eq!(storage.reference("d/x"), reference);
    }
}

#[test]
fn wrong_addresses_name_the_fix_and_repeat_no_secret() {
    for (url, fix) in [
        (
            "bucket/secret",
            "it has no scheme; write it as one of `s3://BUCKET",
        ),
        ("http://secret", "s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/a", "without a login"),
        ("s3:///secret", "s3://BUCKET/PREFIX"),
        ("s3://bucket//secret", "is `.`, `..` or empty"),
        ("s3://bucket/../secret", "is `.`, `..` or empty"),
        ("s3://../secret", "is `.`, `..` or empty"),
        ("gs://bucket/secret/./b", "is `.`, `..` or empty"),
        ("s3://bucket?reqion=secret", "did you mean `region`?"),
        ("s3://bucket?endpoint=secret", "`http://` or `https://`"),
        (
            "s3://bucket?endpoint=http://[secret",
            "`http://` or `https://`",
        ),
        ("az://box?endpoint=http://u:secret@h", "without a login"),
        (
            "gs://bucket?endpoint=http://h/?secret",
            "`http://` or `https://`",
        ),
        ("s3://bucket?endpoint=http://h:secret", "with host and port"),
        ("s3://bucket?endpoint=http://h:99999", "with host and port"),
        (
            "s3://bucket?endpoint=http://127.0.0.256:9000",
            "with host and port",
        ),
        (
            "s3://bucket?endpoint=http://[::1%25eth0]:9000",
            "with host and port",
        ),
        ("s3://bucket?endpoint=http://xn--a", "with host and port"),
        ("s3://bucket?region=eu%20secret", "letters, digits and `-`"),
        ("s3://bucket?region=:99999", "letters, digits and `-`"),
        (
            "az://box?account=AccountKey=secret",
            "small letters and digits",
        ),
        ("az://box?account=accountkey%20secret", "small letters"),
        (
            "gs://bucket?endpoint=http://h&credentials_file=/secret",
            "goes with `https://` alone",
        ),
        ("az://box?account_key=c2hvcA==", "Account must be specified"),
        ("az://box?account=shop&account_key=secret!", "not in base64"),
        ("file://secret", "file:///FOLDER"),
        ("file:///secret?region=x", "options"),
    ] {
        let said = refusal(url);
        assert!(said.contains(fix), "{url}: {said}");
        assert!(!said.contains("secret"), "{url}: {said}");
    }
}

#[test]
fn a_file_of_credentials_that_cannot_be_used_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    let url = format!("gs://bucket?credentials_file={}", file.display());
    assert!(refusal(&url).contains("No such file"));
    for (content, fix) in [
        (
            "\"secret\"",
            "Unable to decode service account file; correct",
        ),
        (
            r#"{"type": "secret"}"#,
            "Unable to decode service account file; correct",
        ),
        (
            r#"{"type": "service_account", "private_key": "secret", "private_key_id": "k",
                "client_email": "e"}"#,
            "reading pem file",
        ),
    ] {
        fs::write(&file, content).unwrap();
        let said = refusal(&url);
        assert!(said.contains(fix), "{content}: {said}");
        assert!(!said.contains("secret"), "{content}: {said}");
    }
}

#[test]
fn a_bucket_is_missing_by_the_words_of_an_answer() {
    let answer = |status: u16, code: &str| {
        let code = match code {
            "" => String::new(),
            code => format!("<Error><Code>{code}</Code></Error>"),
        };
        let words = format!("Server returned non-2xx status code: {status} So it is: {code}");
        Error::NotFound {
            path: "posthaste-check".to_owned(),
            source: words.into(),
        }
    };
    for (status, code) in [
        (404, "NoSuchBucket"),
        (404, "ContainerNotFound"),
        (409, "ContainerBeingDeleted"),
        (409, "ContainerDisabled"),
    ] {
        let (fault, _) = missing(&answer(status, code)).unwrap().told();
        assert_eq!(fault, "there is no such bucket", "{code}");
    }
    // The address of something else.
    let (fault, mend) = missing(&answer(404, "")).unwrap().told();
    assert_eq!(fault, "no object storage answers there (status 404)");
    assert!(mend.contains("`claim_check`"), "{mend}");
    // The object alone is not there.
    for (status, code) in [
        (404, "NoSuchKey"),
        (404, "BlobNotFound"),
        (412, "PreconditionFailed"),
        (412, ""),
    ] {
        assert_eq!(missing(&answer(status, code)), None, "{code}");
    }
}

/// Relays of two containers may have the same number of a process.
#[test]
fn nobody_else_writes_an_unfinished_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("order.1-0123456789abcdef");
    let (first, _) = local::create_unfinished(&path).unwrap();
    let name = first.to_str().unwrap();
    assert!(name.contains("order.1-0123456789abcdef."), "{name}");
    // As one of another process is, whose next numbers are ours.
    let (before, number) = name
        .strip_suffix(".unfinished")
        .and_then(|name| name.rsplit_once('-'))
        .unwrap();
    let number: u64 = number.parse().unwrap();
    for next in number..number + 100 {
        fs::write(format!("{before}-{next}.unfinished"), "other").unwrap();
    }
    let (second, _) = local::create_unfinished(&path).unwrap();
    assert_eq!(fs::read(&second).unwrap(), b"");
    assert_eq!(fs::read(&first).unwrap(), b"other");
}
