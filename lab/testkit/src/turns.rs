//! A recorded sequence of arrivals and of workers' turns. The server and its simulator must take the same
//! steps.
//!
//! ```text
//! design size-aware steal     whose turns follow; steal is left out where idle workers do not help
//! arrive 0 small              a request comes to RX queue 0: small or large
//! turn 1: Poll- Slice+        worker 1 takes a turn: its steps, and whether each found something to do
//! ```

/// The turns of one design.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Name of the design.
    pub design: String,
    /// Idle workers take small requests.
    pub steals: bool,
    /// The events, in order.
    pub events: Vec<Event>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived.
    Arrive {
        /// The RX queue.
        queue: usize,
        /// It asks for a large value.
        is_large: bool,
    },
    /// A worker took a turn.
    Turn {
        /// The worker.
        worker: usize,
        /// Its steps, each as `NAME+` or `NAME-`.
        steps: Vec<String>,
    },
}

/// The recorded form of a step.
pub fn step(name: impl std::fmt::Debug, found: bool) -> String {
    format!("{name:?}{}", if found { '+' } else { '-' })
}

/// All recorded sequences.
///
/// # Panics
/// The record cannot be read.
pub fn recorded() -> Vec<Recorded> {
    let mut designs: Vec<Recorded> = Vec::new();
    for line in include_str!("turns.txt").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["design", design, ref rest @ ..] => designs.push(Recorded {
                design: design.to_owned(),
                steals: rest.contains(&"steal"),
                events: Vec::new(),
            }),
            _ => designs.last_mut().expect("a design comes first").events.push(event(&words)),
        }
    }
    designs
}

fn event(words: &[&str]) -> Event {
    let number = |text: &str| text.trim_end_matches(':').parse().expect("a number");
    match *words {
        ["arrive", queue, size] => Event::Arrive { queue: number(queue), is_large: size == "large" },
        ["turn", worker, ref steps @ ..] => {
            Event::Turn { worker: number(worker), steps: steps.iter().map(|&step| step.to_owned()).collect() }
        }
        _ => panic!("no event: {words:?}"),
    }
}
