use super::*;

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
        ("gs://bucket/a", "gs://bucket/a/d/x"),
        ("file:///var/a%20b/", "file:///var/a%20b/d/x"),
    ] {
        let storage = Storage::open(url).unwrap();
        assert_eq!(storage.reference("d/x"), reference);
    }
}

#[test]
fn wrong_addresses_name_the_fix_and_repeat_no_secret() {
    for (url, fix) in [
        ("bucket/secret", "it has no scheme"),
        ("http://secret", "s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/a", "without a login"),
        ("s3:///secret", "s3://BUCKET/PREFIX"),
        ("s3://bucket?reqion=secret", "did you mean `region`?"),
        ("s3://bucket?endpoint=secret", "`http://` or `https://`"),
        ("file://secret", "file:///FOLDER"),
        ("file:///secret?region=x", "options"),
    ] {
        let said = refusal(url);
        assert!(said.contains(fix), "{url}: {said}");
        assert!(!said.contains("secret"), "{url}: {said}");
    }
}
