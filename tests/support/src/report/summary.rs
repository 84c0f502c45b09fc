//! The numbers for users: ten rows, what sets their times, three plots, and a comparison with upstream. Pure.
//!
//! A row that was not measured is shown as such, so that a page cannot keep an old number by accident.

use std::fmt::Write;

use super::page::Record;
use super::table::{aligned, number, ratio};
use super::{ENOUGH, OURS, PEER, Row, TUNED};

/// A measured quantity with the words that a user page has for it.
struct Quantity {
    what: &'static str,
    chapter: &'static str,
    /// See [`super::Measure::name`].
    name: &'static str,
}

/// What sets a time, where that is a stand-in and not a vCenter or NSX.
struct StandIn {
    /// Index in [`TEN`], from 1.
    row: usize,
    text: &'static str,
    /// A row of the same chapter whose median ends the sentence.
    reference: Option<&'static str>,
}

/// The rows of the short page.
const TEN: [Quantity; 10] = [
    Quantity {
        what: "100 Nodes join at once: until the last one is initialized",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: last initialized",
    },
    Quantity {
        what: "the same: calls to vCenter",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: vCenter calls",
    },
    Quantity {
        what: "the same: CPU time of the program",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: CPU of daemon",
    },
    Quantity {
        what: "the same: resident memory afterwards",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: resident afterwards",
    },
    Quantity {
        what: "1,000 Nodes join at once: until the last one is initialized",
        chapter: "storm-1000",
        name: "nodes registered before the start, 10 ms a call: last initialized",
    },
    Quantity {
        what: "start with 5,000 initialized Nodes: resident memory",
        chapter: "memory",
        name: "started with 5000 nodes: resident",
    },
    Quantity {
        what: "1,000 Nodes, nothing changes: calls to vCenter",
        chapter: "steady",
        name: "1000 nodes, nothing changes: vCenter calls",
    },
    Quantity {
        what: "100 Nodes, an address changes in vCenter: until the Node shows it, 99 of 100 changes",
        chapter: "latency",
        name: "an address, 100 nodes: to the Node, p99",
    },
    Quantity {
        what: "1,000 Nodes, three replicas, SIGTERM to the leader: until the next one writes",
        chapter: "hand-over",
        name: "SIGTERM to the next leader's first write",
    },
    Quantity {
        what: "90 Services of type LoadBalancer at once, 100 Nodes: until the last one has its address",
        chapter: "load-balancers",
        name: "90 Services, 100 nodes: all Services at once: to the last address",
    },
];

const STAND_INS: [StandIn; 4] = [
    StandIn {
        row: 1,
        text: "the vCenter simulator sets the time. It answers each call after an additional 10 ms. This value is \
               chosen, not measured at a vCenter",
        reference: None,
    },
    StandIn {
        row: 5,
        text: "the simulator with the same additional time, and kube-apiserver set the time. As a multiple of \
               the time that this API server needs for the same writes of a plain client, it is",
        reference: Some("nodes registered before the start, 10 ms a call: last ÷ floor"),
    },
    StandIn {
        row: 8,
        text: "the vCenter simulator sets the time, because it reads all VMs again at each change. The time in \
               which a bare client on the same simulator sees 99 of 100 changes is, in seconds,",
        reference: Some("an address, 100 nodes: to a bare client, p99"),
    },
    StandIn {
        row: 10,
        text: "the NSX stand-in sets the time. It takes an additional 10 ms for each call, and this program limits its \
               calls to `--nsx-requests-per-second`. A real NSX can be faster or slower",
        reference: None,
    },
];

/// The rows of the table that compares with upstream. The last one is a case in which upstream is faster.
const BESIDE: [Quantity; 8] = [
    Quantity {
        what: "last of 100 Nodes initialized, 10 ms for each call to vCenter",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: last initialized",
    },
    Quantity {
        what: "the same, 30 ms for each call",
        chapter: "storm-100",
        name: "nodes registered before the start, 30 ms a call: last initialized",
    },
    Quantity {
        what: "calls to vCenter for 100 Nodes",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: vCenter calls",
    },
    Quantity {
        what: "data from vCenter",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: bytes from vCenter",
    },
    Quantity {
        what: "CPU time of the program",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: CPU of daemon",
    },
    Quantity {
        what: "CPU time of kube-apiserver",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: CPU of kube-apiserver",
    },
    Quantity {
        what: "resident memory afterwards",
        chapter: "storm-100",
        name: "nodes registered before the start, 10 ms a call: resident afterwards",
    },
    Quantity {
        what: "first Node initialized while the program runs, no delay of vCenter",
        chapter: "storm-100",
        name: "nodes registered while it runs, 0 ms a call: first initialized",
    },
];

/// The plots of the short page, by the title of their picture, with a sentence for each.
const PLOTS: [(&str, &str); 3] = [
    (
        "storm-100: nodes registered before the start, 10 ms a call",
        "The share of initialized Nodes over time, after 100 Nodes join at once. The *floor* is a plain client that \
         makes the same writes without vCenter.",
    ),
    (
        "steady: vCenter calls",
        "Calls to vCenter in a minute, with 100 and with 1,000 Nodes. While nothing changes, their number does not \
         depend on the number of Nodes.",
    ),
    (
        "latency: an address, 100 nodes",
        "The time from a change of an address in vCenter to the Node. The dashed line is a bare client on the same \
         simulator.",
    ),
];

impl Record {
    /// Returns the ten rows, with the run of each, and what sets their times. `runs` is the address of the list of
    /// runs.
    pub(super) fn ten_rows(&self, runs: &str) -> String {
        let peers: Vec<&str> =
            [PEER, TUNED].into_iter().filter(|peer| TEN.iter().any(|row| self.has(row, peer))).collect();
        let mut heads = ["", "what", "unit", "this program"].map(str::to_owned).to_vec();
        for peer in &peers {
            let name = upstream(peer);
            heads.extend([name.to_owned(), format!("{name} ÷ this program")]);
        }
        heads.extend(["samples", "run"].map(str::to_owned));
        let mut lines = vec![heads];
        for (index, quantity) in TEN.iter().enumerate() {
            let ours = self.find(quantity, OURS);
            let unit = ours.map_or("", |(_, row)| row.unit.as_str());
            let mut cells = vec![(index + 1).to_string(), quantity.what.to_owned(), unit.to_owned()];
            cells.push(ours.map_or_else(|| "not measured".to_owned(), |(_, row)| number(row.median())));
            for peer in &peers {
                cells.extend(self.beside(quantity, peer));
            }
            cells.push(ours.map_or(0, |(_, row)| row.samples.len()).to_string());
            cells.push(ours.map(|(run, _)| format!("[{run}]({runs})")).unwrap_or_default());
            lines.push(cells);
        }
        format!("{}\n{}\n\n{}", aligned(&lines), self.limits(), self.stand_ins())
    }

    /// Returns the table that compares with upstream.
    pub(super) fn comparison_with_upstream(&self) -> String {
        let peers: Vec<&str> =
            [PEER, TUNED].into_iter().filter(|peer| BESIDE.iter().any(|row| self.has(row, peer))).collect();
        let mut heads = ["what", "unit", "this program"].map(str::to_owned).to_vec();
        for peer in &peers {
            let name = upstream(peer);
            heads.extend([name.to_owned(), format!("{name} ÷ this program")]);
        }
        let mut lines = vec![heads];
        for quantity in &BESIDE {
            let Some((_, ours)) = self.find(quantity, OURS) else { continue };
            let mut cells = vec![quantity.what.to_owned(), ours.unit.clone(), number(ours.median())];
            for peer in &peers {
                cells.extend(self.beside(quantity, peer));
            }
            lines.push(cells);
        }
        aligned(&lines)
    }

    /// Returns the plots of the short page, each with its sentence. A plot that does not exist is left out.
    pub(super) fn three_plots(&self, folder: &str) -> String {
        let mut text = String::new();
        let pictures = self.pictures();
        for (title, sentence) in PLOTS {
            if let Some(picture) = pictures.iter().find(|picture| picture.title == title) {
                let _ = write!(text, "{sentence}\n\n![{title}]({folder}/{})\n\n", picture.file);
            }
        }
        text.trim_end_matches('\n').to_owned() + "\n"
    }

    /// Returns the number of the run with this quantity, from 1, and its row.
    fn find(&self, quantity: &Quantity, subject: &str) -> Option<(usize, &Row)> {
        self.named_row(quantity.chapter, quantity.name, subject)
    }

    fn named_row(&self, chapter: &str, name: &str, subject: &str) -> Option<(usize, &Row)> {
        let is_it = |row: &&Row| row.chapter == chapter && row.name == name && row.subject == subject;
        let runs = self.runs.iter().enumerate();
        runs.filter_map(|(index, run)| Some((index + 1, run.rows.iter().find(is_it)?)))
            .find(|(_, row)| !row.samples.is_empty())
    }

    fn has(&self, quantity: &Quantity, subject: &str) -> bool {
        self.find(quantity, subject).is_some()
    }

    /// Returns the peer's median, and its ratio to ours. Both are of one run, because a chapter is in one run only.
    fn beside(&self, quantity: &Quantity, peer: &str) -> [String; 2] {
        let (Some((_, ours)), Some((_, peer))) = (self.find(quantity, OURS), self.find(quantity, peer)) else {
            return [String::new(), String::new()];
        };
        [number(peer.median()), ratio(peer, ours).map(number).unwrap_or_default()]
    }

    /// Counts the limits, and those that enough samples keep.
    fn limits(&self) -> String {
        let with_limit = |row: &&Row| row.subject == OURS && row.limit.is_some();
        let rows: Vec<&Row> = self.runs.iter().flat_map(|run| &run.rows).filter(with_limit).collect();
        let missed = rows.iter().filter(|row| row.is_missed()).count();
        let few = rows.iter().filter(|row| !row.is_missed() && row.samples.len() < ENOUGH).count();
        format!(
            "The program has {} limits for its numbers. {} are met in at least {ENOUGH} samples, {few} in fewer \
             samples, and {missed} are missed.",
            rows.len(),
            rows.len() - missed - few
        )
    }

    fn stand_ins(&self) -> String {
        let mut text = String::new();
        for StandIn { row, text: sentence, reference } in &STAND_INS {
            let Some(quantity) = TEN.get(row - 1) else { continue };
            let reference = reference.and_then(|name| self.named_row(quantity.chapter, name, OURS));
            let number = reference.map(|(_, row)| format!(" {}", number(row.median()))).unwrap_or_default();
            let _ = writeln!(text, "- Row {row}: {sentence}{number}.");
        }
        text
    }
}

fn upstream(peer: &str) -> &'static str {
    if peer == TUNED { "upstream, tuned" } else { "upstream" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Limit;
    use crate::report::tests::{measured, row};

    fn record() -> Record {
        let of = |subject: &str, value: f64, limit| Row {
            chapter: "storm-100".to_owned(),
            ..row(subject, TEN[0].name, "s", &[value], limit)
        };
        let mut record = Record::default();
        record.add(measured(vec![of("ours", 2.0, Some(Limit::Below(3.0))), of("peer", 50.0, None)]));
        record
    }

    #[test]
    fn the_ten_rows_name_what_was_not_measured() {
        let text = record().ten_rows("runs.md");
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "| | what | unit | this program | upstream | upstream ÷ this program | samples | run |");
        assert!(lines[2].ends_with("| s | 2 | 50 | 25 | 1 | [1](runs.md) |"), "{text}");
        assert!(lines[3].ends_with("| | not measured | | | 0 | |"), "{text}");
        assert!(
            text.contains("has 1 limits") && text.contains("0 are met in at least 3 samples, 1 in fewer"),
            "{text}"
        );
        assert!(text.contains("- Row 10: the NSX stand-in sets the time."), "{text}");
    }

    #[test]
    fn a_tuned_peer_has_a_column_of_its_own() {
        let mut record = record();
        let tuned = Row { chapter: "storm-100".to_owned(), ..row("tuned peer", TEN[0].name, "s", &[8.0], None) };
        record.runs[0].rows.push(tuned);
        let text = record.comparison_with_upstream();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let heads = "| what | unit | this program | upstream | upstream ÷ this program | upstream, tuned \
                     | upstream, tuned ÷ this program |";
        assert_eq!(lines[0], heads);
        assert!(lines[2].ends_with("| s | 2 | 50 | 25 | 8 | 4 |"), "{text}");
        assert_eq!(lines.len(), 3, "rows that were not measured are left out: {text}");
    }

    #[test]
    fn every_sentence_is_of_a_row_with_a_time() {
        for StandIn { row, .. } in &STAND_INS {
            assert!(TEN[row - 1].what.contains("until"), "row {row}");
        }
    }
}
