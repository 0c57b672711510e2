//! The answer of a sink's check: what it saw, and what somebody should mend.

/// Parts, and findings, that a report holds at the most. A cluster may have any number of topics;
/// nobody reads more of them.
const LISTED_MAX: usize = 100;

/// The parts of a destination that a check saw, and what is wrong with them. Bounded: parts and
/// findings beyond a hundred each are counted only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    parts: Vec<CheckedPart>,
    parts_left_out: usize,
    findings: Vec<Finding>,
    findings_left_out: usize,
}

/// A part of a destination: a topic, a stream, an exchange, a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPart {
    /// The kind of part, such as `topic`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its properties; the same ones, in the same order, for all parts of its kind.
    pub facts: Vec<Fact>,
}

/// A property of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its name, such as `partitions`.
    pub name: &'static str,
    /// Its value; none: not seen, since we may not ask or the protocol does not tell.
    pub value: Option<String>,
}

impl Fact {
    /// A property of this value.
    #[must_use]
    pub fn seen(name: &'static str, value: impl ToString) -> Self {
        let value = Some(value.to_string());
        Self { name, value }
    }

    /// A property that may not be seen.
    #[must_use]
    pub fn new(name: &'static str, value: Option<impl ToString>) -> Self {
        let value = value.map(|value| value.to_string());
        Self { name, value }
    }
}

/// The harm of what a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The part takes no events as it stands.
    Stops,
    /// Events that were accepted can be lost.
    Risk,
}

impl Severity {
    /// The name used in text and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stops => "stops",
            Self::Risk => "risk",
        }
    }
}

/// Something that somebody should mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The harm.
    pub severity: Severity,
    /// The part that is meant, in words, such as "topic `orders`".
    pub place: String,
    /// The fault in words.
    pub fault: String,
    /// The way to mend it, in words.
    pub mend: String,
}

impl CheckReport {
    /// Adds a part.
    pub fn part(&mut self, kind: &'static str, name: impl Into<String>, facts: Vec<Fact>) {
        if self.parts.len() == LISTED_MAX {
            self.parts_left_out += 1;
            return;
        }
        let name = name.into();
        self.parts.push(CheckedPart { kind, name, facts });
    }

    /// Adds a finding.
    pub fn finding(&mut self, finding: Finding) {
        if self.findings.len() == LISTED_MAX {
            self.findings_left_out += 1;
            return;
        }
        self.findings.push(finding);
    }

    /// The parts, in the order in which they were added.
    #[must_use]
    pub fn parts(&self) -> &[CheckedPart] {
        &self.parts
    }

    /// How many further parts there are.
    #[must_use]
    pub fn parts_left_out(&self) -> usize {
        self.parts_left_out
    }

    /// The findings, in the order in which they were added.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many further findings there are.
    #[must_use]
    pub fn findings_left_out(&self) -> usize {
        self.findings_left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded_and_says_so() {
        let mut report = CheckReport::default();
        for at in 0..LISTED_MAX + 3 {
            report.part("topic", at.to_string(), Vec::new());
            report.finding(Finding {
                severity: Severity::Risk,
                place: at.to_string(),
                fault: String::new(),
                mend: String::new(),
            });
        }
        assert_eq!(
            (report.parts().len(), report.parts_left_out()),
            (LISTED_MAX, 3)
        );
        let left_out = report.findings_left_out();
        assert_eq!((report.findings().len(), left_out), (LISTED_MAX, 3));
    }
}
