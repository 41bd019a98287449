//! Workloads that change, replies that are not sent, and the load of each worker (Minos §6.4 to §6.6).

use minos_sim::dispatch::{Design, Mix, Outcome, Spec, run};

const PHASES: [f64; 3] = [0.125, 0.75, 0.125];
const WINDOWS: u32 = 30;
const REQUESTS: u64 = 900_000;

fn changing(design: Design) -> Outcome {
    let spec = Spec {
        requests: REQUESTS,
        warmup_percent: 0.0,
        epoch_requests: 30_000,
        phases: PHASES.to_vec(),
        windows: WINDOWS,
        ..Spec::new(design, 2e6)
    };
    run(&spec).unwrap()
}

#[test]
fn large_workers_follow_the_phases_as_in_figure_10() {
    let outcome = changing(Design::SizeAware);
    let large: Vec<_> = outcome.windows.iter().map(|window| window.large_workers).collect();
    for (phase, &percent) in PHASES.iter().enumerate() {
        // At 0.125 % one worker is large, or is on standby. The plan follows within two epochs, which are two
        // windows.
        let settled = &large[phase * 10 + 2..phase * 10 + 10];
        let wanted = |&workers: &usize| if percent > 0.5 { (3..=5).contains(&workers) } else { workers <= 1 };
        assert!(settled.iter().all(wanted), "phase {phase}: {large:?}");
    }
}

#[test]
fn windows_tell_all_requests_apart_by_time() {
    let stealing = changing(Design::Stealing);
    for outcome in [&stealing, &changing(Design::SizeAware)] {
        let windows = &outcome.windows;
        assert!((WINDOWS as usize..WINDOWS as usize + 2).contains(&windows.len()), "{}", windows.len());
        let answered: u64 = windows.iter().map(|window| window.requests).sum();
        assert!(answered <= REQUESTS && answered > REQUESTS - 9_000, "{}: {answered}", outcome.design);
        assert!(windows.iter().all(|window| window.requests == 0 || window.percentile_us > Some(3.5)));
    }
    // Few and many large requests differ if workers steal and small requests wait behind large ones.
    let p99 = |window: usize| stealing.windows[window].percentile_us.unwrap();
    assert!(p99(15) > 3.0 * p99(5), "{} and {}", p99(15), p99(5));
}

#[test]
fn what_is_not_replied_to_is_served_all_the_same() {
    let of = |reply_percent| {
        let mix = Mix { large_percent: 0.75, ..Mix::PAPER };
        let spec = Spec {
            mix,
            reply_percent,
            requests: 400_000,
            warmup_percent: 0.0,
            ..Spec::new(Design::SizeAware, 1.5e6)
        };
        run(&spec).unwrap()
    };
    let (all, half) = (of(100.0), of(50.0));
    let served = |outcome: &Outcome| outcome.workers.iter().map(|worker| worker.requests).sum::<u64>();
    assert_eq!((served(&all), served(&half)), (400_000, 400_000));
    assert_eq!(all.latency_us.all.count, 400_000);
    assert!((195_000..205_000).contains(&half.latency_us.all.count), "{}", half.latency_us.all.count);
    assert!((half.link_busy / all.link_busy - 0.5).abs() < 0.03, "{} of {}", half.link_busy, all.link_busy);
    assert!(half.achieved_rps > 0.98 * all.achieved_rps);
}

#[test]
fn replies_that_are_not_sent_make_room_on_the_link_as_in_figure_8() {
    let most = |reply_percent| {
        let mix = Mix { large_percent: 0.75, ..Mix::PAPER };
        let spec = Spec { mix, reply_percent, requests: 300_000, ..Spec::new(Design::SizeAware, 4e6) };
        // The percentile of all requests leaves out large requests that are never served.
        let keeps_up =
            |rate: &f64| run(&Spec { rate: *rate, ..spec.clone() }).unwrap().latency_us.large.p99 < 5e3;
        (1..=16).map(|step| f64::from(step) * 0.25e6).take_while(keeps_up).last().unwrap()
    };
    let (all, quarter) = (most(100.0), most(25.0));
    assert!(quarter > 1.3 * all, "{quarter} and {all}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let good = Spec::new(Design::SizeAware, 1e6);
    let bad = [
        ("reply-percent", Spec { reply_percent: 0.0, ..good.clone() }),
        ("large-percent", Spec { phases: vec![0.1, 101.0], ..good.clone() }),
    ];
    for (name, spec) in bad {
        let message = run(&spec).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{name}: ")) && message.contains("not allowed"), "{message}");
    }
}
