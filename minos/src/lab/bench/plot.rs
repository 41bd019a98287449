//! Bars for terminals.

/// A bar that fills `share` (0 to 1) of `width` columns, in eighths of a column.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(EIGHTHS[eighths % 8]);
    bar
}

/// Where `value` lies between `least` and `most` on a logarithmic scale, 0 to 1.
pub(crate) fn log_share(value: f64, least: f64, most: f64) -> f64 {
    let (least, most) = (least.max(1e-9), most.max(1e-9));
    if value <= least || most <= least {
        return if value >= most { 1.0 } else { 0.0 };
    }
    (value / least).ln() / (most / least).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_their_share() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(1.0, 10), "█".repeat(10));
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(7.0, 2), "██");
        assert_eq!(bar(f64::NAN, 2), "");
    }

    #[test]
    fn decades_are_equally_long() {
        assert!((log_share(100.0, 10.0, 1000.0) - 0.5).abs() < 1e-9);
        assert_eq!(log_share(1.0, 10.0, 1000.0), 0.0);
        assert_eq!(log_share(1000.0, 10.0, 1000.0), 1.0);
        assert_eq!(log_share(5.0, 5.0, 5.0), 1.0);
    }
}
