//! The ARN of a topic: `arn:PARTITION:sns:REGION:ACCOUNT:NAME`.

use crate::requests::place_name::{NamePattern, NameRule};

const NAME_BYTES_MAX: usize = 256;

const FORM: &str = "a topic is `sns://arn:aws:sns:REGION:ACCOUNT:TOPIC`, with an account of 12 \
                    digits";

/// An ARN without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arn {
    partition: String,
    pub(super) region: String,
    account: String,
}

impl Arn {
    /// The ARN in this text, and the pattern of its name.
    ///
    /// # Errors
    /// The mistake, in words.
    pub(super) fn parse(text: &str) -> Result<(Self, NamePattern), &'static str> {
        let parts: Vec<&str> = text.splitn(6, ':').collect();
        let &["arn", partition, "sns", region, account, name] = &*parts else {
            return Err(FORM);
        };
        let is_word = |text: &str| {
            let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !text.is_empty() && text.bytes().all(may_stand)
        };
        let is_account = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
        if !is_word(partition) || !is_word(region) || !is_account {
            return Err(FORM);
        }
        let names = NamePattern::new(name, NAME_BYTES_MAX, NameRule::WithFifo)?;
        let arn = Self {
            partition: partition.to_owned(),
            region: region.to_owned(),
            account: account.to_owned(),
        };
        Ok((arn, names))
    }

    /// The ARN of a topic.
    pub(super) fn of_topic(&self, name: &str) -> String {
        let Self {
            partition,
            region,
            account,
        } = self;
        format!("arn:{partition}:sns:{region}:{account}:{name}")
    }
}
