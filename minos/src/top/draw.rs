//! The picture of `minos top`.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Gauge, Row, Sparkline, Table},
};

use super::view::{Answers, SIZES, Slow, Worker, bytes_text, time_text};

const STAGES: [&str; 4] = ["rx", "ring", "service", "tx"];
/// Rows of keys and of slow requests.
const KEYS: usize = 8;
const SLOW: usize = 5;

const SMALL: Color = Color::LightBlue;
const LARGE: Color = Color::Yellow;
const STANDBY: Color = Color::Cyan;

/// Draws what the answers say, as far as there is room.
pub(super) fn draw(frame: &mut Frame<'_>, answers: &Answers) {
    let workers = answers.workers();
    let areas = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(5),
        Constraint::Length(4),
        Constraint::Length((workers.len() as u16).saturating_add(3).min(12)),
        Constraint::Length(3),
        Constraint::Length(KEYS as u16 + 3),
        Constraint::Length(SLOW as u16 + 3),
    ]);
    let [head, latency, lines, roles, memory, keys, slow] = areas.areas(frame.area());
    draw_head(frame, head, answers);
    draw_latency(frame, latency, answers);
    draw_lines(frame, lines, answers);
    draw_workers(frame, roles, &workers);
    draw_memory(frame, memory, answers);
    let [hot, large] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(keys);
    draw_hot(frame, hot, answers);
    draw_large(frame, large, answers);
    draw_slow(frame, slow, &answers.now().slow);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let now = answers.now();
    let asked = answers.rate("get_hits") + answers.rate("get_misses");
    let hits = match asked > 0.0 {
        true => format!("{:.1} %", 100.0 * answers.rate("get_hits") / asked),
        false => "-".to_owned(),
    };
    let requests = answers.rate("cmd_get") + answers.rate("cmd_set") + answers.rate("cmd_touch");
    let first = format!(
        "Minos {}  {}  up {} s  threshold {}  {} connections",
        now.version(),
        now.dispatch,
        now.number("uptime"),
        bytes_text(now.number("threshold_bytes")),
        now.number("curr_connections"),
    );
    let second = format!(
        "{requests:.0} requests/s  hits {hits}  in {}/s  out {}/s  evicted {:.0}/s",
        bytes_text(answers.rate("bytes_read")),
        bytes_text(answers.rate("bytes_written")),
        answers.rate("evictions"),
    );
    frame.render_widget(Line::from(first).bold(), area);
    let below = Rect { y: area.y + area.height.min(1), height: area.height.saturating_sub(1), ..area };
    frame.render_widget(Line::from(second), below);
}

/// Percentiles of all, and the 99th by stage.
fn draw_latency(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let head = ["", "p50", "p99", "p99.9", "rx p99", "ring p99", "service p99", "tx p99"];
    let rows = SIZES.iter().zip([SMALL, LARGE]).map(|(size, color)| {
        let percentiles = [0.5, 0.99, 0.999].map(|share| answers.quantile_ns(size, "total", share));
        let stages = STAGES.map(|stage| answers.quantile_ns(size, stage, 0.99));
        let times = percentiles.into_iter().chain(stages).map(time_text);
        Row::new(std::iter::once((*size).to_owned()).chain(times)).style(Style::new().fg(color))
    });
    let widths =
        std::iter::once(Constraint::Length(6)).chain((1..head.len()).map(|_| Constraint::Length(11)));
    table(frame, area, "Latency in the server", (head.to_vec(), widths.collect()), rows.collect());
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let halves: [Rect; 2] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    for (place, (half, color)) in halves.into_iter().zip([SMALL, LARGE]).enumerate() {
        let points = &answers.p99_us[place];
        let most = points.iter().max().copied().unwrap_or(0);
        let title = format!("p99 of {} requests, up to {}", SIZES[place], time_text(Some(most * 1000)));
        let shown = points.len().saturating_sub(usize::from(half.width.saturating_sub(2)));
        let line =
            Sparkline::default().data(points.iter().skip(shown).copied()).style(Style::new().fg(color));
        frame.render_widget(line.block(Block::bordered().title(title)), half);
    }
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, workers: &[Worker]) {
    let rows = workers.iter().enumerate().map(|(number, worker)| {
        let color = match &*worker.role {
            "large" => LARGE,
            "standby" => STANDBY,
            _ => SMALL,
        };
        let percent = |part: f64| format!("{:.0} %", 100.0 * part);
        let bar = "#".repeat((worker.busy * 20.0).round() as usize);
        let cells = [
            number.to_string(),
            worker.role.clone(),
            percent(worker.busy),
            percent(worker.large),
            worker.ring.to_string(),
            bar,
        ];
        Row::new(cells).style(Style::new().fg(color))
    });
    let widths = [3, 8, 6, 12, 6, 20].map(Constraint::Length).to_vec();
    let head = vec!["", "role", "busy", "large values", "ring", ""];
    table(frame, area, "Workers", (head, widths), rows.collect());
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let now = answers.now();
    let (used, limit) = (now.number("store_used_bytes"), now.number("limit_maxbytes").max(1.0));
    let label = format!("{} of {}, {} items", bytes_text(used), bytes_text(limit), now.number("curr_items"));
    let gauge = Gauge::default().ratio((used / limit).clamp(0.0, 1.0)).label(label);
    let gauge = gauge.gauge_style(Style::new().fg(SMALL)).block(Block::bordered().title("Memory"));
    frame.render_widget(gauge, area);
}

fn draw_hot(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let rows = answers.now().hot.iter().take(KEYS).map(|hot| {
        Row::new([hot.key.clone(), format!("{:.0}", hot.requests_s), format!("{:.1} %", 100.0 * hot.share)])
    });
    let widths = vec![Constraint::Fill(1), Constraint::Length(10), Constraint::Length(7)];
    table(frame, area, "Hot keys", (vec!["key", "requests/s", "share"], widths), rows.collect());
}

fn draw_large(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let rows = answers.now().large.iter().take(KEYS).map(|large| {
        Row::new([large.key.clone(), bytes_text(large.bytes as f64), large.requests.to_string()])
    });
    let widths = vec![Constraint::Fill(1), Constraint::Length(10), Constraint::Length(8)];
    table(frame, area, "Large keys", (vec!["key", "size", "requests"], widths), rows.collect());
}

fn draw_slow(frame: &mut Frame<'_>, area: Rect, slow: &[Slow]) {
    let rows = slow.iter().take(SLOW).map(|slow| {
        let took = time_text(Some(slow.us.saturating_mul(1000)));
        let size = bytes_text(slow.bytes as f64);
        Row::new([slow.key.clone(), slow.command.clone(), took, size, slow.client.clone()])
    });
    let widths = vec![
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(24),
    ];
    let head = vec!["key", "command", "took", "size", "client"];
    table(frame, area, "Slow requests", (head, widths), rows.collect());
}

/// A table with a frame.
fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &'static str,
    (head, widths): (Vec<&'static str>, Vec<Constraint>),
    rows: Vec<Row<'_>>,
) {
    let head = Row::new(head.into_iter().map(|text| Span::styled(text, Modifier::DIM)));
    let table = Table::new(rows, widths).header(head).block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::super::{
        picture,
        view::{Answers, tests::now},
    };

    #[test]
    fn the_picture_shows_what_the_server_says() {
        let mut answers = Answers::new(now(10, 1_000_000));
        answers.take(now(12, 1_010_000));
        let text = picture(&answers, (100, 40)).unwrap();
        for part in [
            "Minos 0.1.0  size-aware  up 12 s  threshold 1.4 KiB  7 connections",
            "5000 requests/s  hits 50.0 %  in 0 B/s  out 9.8 MiB/s",
            "small  10.0 us     80.0 us     80.0 us",
            "large  5.00 ms",
            "1   large    25 %   12 %         3      #####",
            "256.0 MiB of 1.0 GiB, 12 items",
            "user:17",
            "25.0 %",
            "big\\x1b",
            "9.5 MiB",
            "10.0.0.1:5",
        ] {
            assert!(text.contains(part), "no {part:?}:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn small_terminals_are_no_error() {
        let mut answers = Answers::new(now(10, 1_000_000));
        answers.take(now(12, 1_010_000));
        for size in [(1, 1), (3, 2), (20, 10), (40, 100), (200, 3)] {
            picture(&answers, size).unwrap();
        }
    }
}
