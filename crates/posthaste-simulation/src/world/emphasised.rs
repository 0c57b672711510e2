//! What an emphasis changes of a plan.

use super::{Engine, Plan};
use crate::{broker::Kind, seed::Emphasis};

impl Plan {
    pub(super) fn emphasised(mut self) -> Self {
        match self.emphasis {
            Emphasis::Usual => return self,
            Emphasis::Zombies => {
                let timing = |kind: &Kind| !kind.is_exact() && *kind != Kind::Forgetful;
                self.kinds.retain(timing);
                self.kinds.push(Kind::KafkaIdempotent);
                self.kinds.truncate(2);
                self.steps = false;
            }
            Emphasis::Retention => {
                let late = [Kind::KafkaIdempotent, Kind::RabbitMq];
                self.kinds.extend(late.into_iter().cycle().take(4));
            }
            Emphasis::Pooler => {}
        }
        self.engine = Engine::Postgres;
        self
    }
}
