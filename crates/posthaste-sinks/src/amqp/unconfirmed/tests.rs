use super::*;

#[derive(Debug, Clone)]
struct Sample {
    id: String,
    routing_key: &'static str,
    number: u64,
}

impl Message for Sample {
    type Refusal = ();

    fn has_id(&self, id: &str) -> bool {
        self.id == id
    }

    fn routing_key(&self) -> &str {
        self.routing_key
    }

    fn body(&self) -> &[u8] {
        b"1234"
    }

    fn write_start(&self, _: &mut Vec<u8>, _: &str, _: usize) -> Result<(), ()> {
        Ok(())
    }
}

struct Channel {
    unconfirmed: Unconfirmed<Sample>,
    ended: Vec<(Sample, Confirmation)>,
}

impl Channel {
    /// Each message published, with its place as its number.
    fn with(messages: &[Sample]) -> Self {
        let mut unconfirmed = Unconfirmed::default();
        for (number, message) in (0..).zip(messages) {
            let message = Sample {
                number,
                ..message.clone()
            };
            unconfirmed.push(message, Instant::now());
        }
        Self {
            unconfirmed,
            ended: Vec::new(),
        }
    }

    fn ack(&mut self, tag: u64, multiple: bool) -> Result<(), Error> {
        self.unconfirmed
            .confirmed(tag, multiple, true, &mut self.ended)
    }

    fn nack(&mut self, tag: u64, multiple: bool) {
        let confirmed = self
            .unconfirmed
            .confirmed(tag, multiple, false, &mut self.ended);
        confirmed.unwrap();
    }

    fn bounce(&mut self, message: &Sample) -> Result<(), Error> {
        let why = (312, "NO_ROUTE".to_owned());
        self.unconfirmed
            .returned(&message.id, message.routing_key, why)
    }

    /// Number and how it ended, since the last call.
    fn told(&mut self) -> Vec<(u64, char)> {
        let told = self.ended.drain(..).map(|(message, answer)| {
            let how = match answer {
                Confirmation::Ack => 'a',
                Confirmation::Returned { .. } => 'r',
                Confirmation::Nack => 'u',
                Confirmation::None(_) => 's',
            };
            (message.number, how)
        });
        told.collect()
    }
}

fn messages(count: usize) -> Vec<Sample> {
    (0..count)
        .map(|number| Sample {
            id: format!("id-{number}"),
            routing_key: "orders",
            number: 0,
        })
        .collect()
}

#[test]
fn each_confirm_finds_its_record() {
    let mut channel = Channel::with(&messages(8));
    assert_eq!(
        (channel.unconfirmed.len(), channel.unconfirmed.bytes()),
        (8, 32)
    );
    channel.ack(3, false).unwrap();
    assert_eq!(channel.told(), [(2, 'a')]);
    channel.nack(2, true);
    assert_eq!(channel.told(), [(0, 'u'), (1, 'u')]);
    // Again, and below what is still known.
    channel.ack(3, true).unwrap();
    channel.ack(1, false).unwrap();
    assert_eq!(channel.told(), []);
    channel.nack(5, false);
    channel.ack(6, true).unwrap();
    assert_eq!(channel.told(), [(4, 'u'), (3, 'a'), (5, 'a')]);
    assert_eq!(
        (channel.unconfirmed.len(), channel.unconfirmed.bytes()),
        (2, 8)
    );
    channel.ack(0, true).unwrap();
    assert_eq!(channel.told(), [(6, 'a'), (7, 'a')]);
    assert_eq!(channel.unconfirmed.oldest(), None);
}

#[test]
fn what_stays_unconfirmed_before_a_confirmed_one_is_given_up() {
    let sent = messages(5);
    let mut channel = Channel::with(&sent);
    let give_up = |channel: &mut Channel| {
        let (unconfirmed, limit) = (&mut channel.unconfirmed, Duration::from_secs(1));
        unconfirmed.give_up(limit, &mut channel.ended)
    };
    assert!(!give_up(&mut channel), "the broker may be away");
    channel.ack(2, false).unwrap();
    channel.ack(4, false).unwrap();
    assert!(give_up(&mut channel) && give_up(&mut channel));
    assert!(!give_up(&mut channel), "nothing behind it is confirmed");
    assert_eq!(channel.told(), [(1, 'a'), (3, 'a'), (0, 's'), (2, 's')]);
    assert_eq!(
        (channel.unconfirmed.len(), channel.unconfirmed.bytes()),
        (1, 4)
    );
    // Late answers say nothing new.
    channel.bounce(&sent[0]).unwrap();
    channel.ack(1, false).unwrap();
    channel.nack(3, false);
    assert_eq!(channel.told(), []);
    channel.ack(0, true).unwrap();
    assert_eq!(channel.told(), [(4, 'a')]);
}

#[test]
fn a_broker_that_is_asked_has_read_what_was_sent_before() {
    let mut channel = Channel::with(&messages(2));
    let (limit, mut ended) = (Duration::from_secs(1), Vec::new());
    let unconfirmed = &mut channel.unconfirmed;
    assert!(!unconfirmed.reads() && unconfirmed.is_to_be_asked());
    unconfirmed.ask();
    unconfirmed.push(messages(1).remove(0), Instant::now());
    assert!(!unconfirmed.is_to_be_asked() && !unconfirmed.give_up(limit, &mut ended));
    assert!(unconfirmed.reads() && !unconfirmed.reads());
    assert!(unconfirmed.give_up(limit, &mut ended) && unconfirmed.give_up(limit, &mut ended));
    assert!(!unconfirmed.give_up(limit, &mut ended), "sent behind it");
    assert!(unconfirmed.is_to_be_asked());
}

#[test]
fn a_return_counts_for_its_own_record() {
    let sent = messages(6);
    let mut channel = Channel::with(&sent);
    channel.bounce(&sent[1]).unwrap();
    channel.bounce(&sent[4]).unwrap();
    // Out of order, which no broker does.
    channel.bounce(&sent[0]).unwrap();
    channel.ack(4, true).unwrap();
    assert_eq!(channel.told(), [(0, 'r'), (1, 'r'), (2, 'a'), (3, 'a')]);
    channel.nack(5, false);
    channel.ack(6, false).unwrap();
    assert_eq!(channel.told(), [(4, 'r'), (5, 'a')]);
}

#[test]
fn of_one_id_the_oldest_is_returned() {
    let mut sent = messages(3);
    sent[1] = sent[0].clone();
    sent[2] = sent[0].clone();
    let mut channel = Channel::with(&sent);
    channel.bounce(&sent[0]).unwrap();
    channel.bounce(&sent[0]).unwrap();
    channel.ack(3, true).unwrap();
    assert_eq!(channel.told(), [(0, 'r'), (1, 'r'), (2, 'a')]);
}

#[test]
fn of_one_id_the_one_with_the_returned_routing_key_is_meant() {
    let mut sent = messages(2);
    sent[1].id = sent[0].id.clone();
    sent[1].routing_key = "nobody.wants.this";
    let mut channel = Channel::with(&sent);
    channel.bounce(&sent[1]).unwrap();
    channel.ack(2, true).unwrap();
    assert_eq!(channel.told(), [(0, 'a'), (1, 'r')]);
}

#[test]
fn answers_that_fit_nothing_are_refused() {
    let sent = messages(2);
    let mut channel = Channel::with(&sent[..1]);
    assert!(channel.bounce(&sent[1]).is_err());
    assert!(
        channel
            .unconfirmed
            .returned("", "", (0, String::new()))
            .is_err()
    );
    assert!(channel.ack(2, false).is_err());
    assert!(channel.ack(2, true).is_err());
    assert!(channel.ack(0, false).is_err());
    channel.ack(1, false).unwrap();
    assert!(channel.bounce(&sent[0]).is_err());
    assert_eq!(channel.unconfirmed.into_messages().count(), 0);
}
