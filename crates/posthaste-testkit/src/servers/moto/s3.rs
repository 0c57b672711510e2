//! Buckets, and the objects in them.

use super::MotoServer;

impl MotoServer {
    /// Makes a bucket.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn create_bucket(&self, bucket: &str) {
        let region = "<CreateBucketConfiguration><LocationConstraint>eu-central-1\
                      </LocationConstraint></CreateBucketConfiguration>";
        let (status, said) = self.client().ask_s3("PUT", bucket, region);
        let said = String::from_utf8_lossy(&said);
        assert_eq!(status, 200, "{said}");
    }

    /// The bytes of an object; none if there is none of this name.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn object(&self, bucket: &str, name: &str) -> Option<Vec<u8>> {
        let (status, bytes) = self.client().ask_s3("GET", &format!("{bucket}/{name}"), "");
        match status {
            200 => Some(bytes),
            404 => None,
            other => panic!("{bucket}/{name}: {other}"),
        }
    }

    /// The names of all objects of a bucket, in their order.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn objects(&self, bucket: &str) -> Vec<String> {
        let (status, listed) = self
            .client()
            .ask_s3("GET", &format!("{bucket}?list-type=2"), "");
        assert_eq!(status, 200);
        let listed = String::from_utf8(listed).expect("a list in UTF-8");
        let names = listed.split("<Key>").skip(1);
        names
            .filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()))
            .collect()
    }
}
