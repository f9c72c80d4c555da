//! What a job leaves open: which method, by trying the candidates where all data is at hand.

use anyhow::Result;
use corewire_comm::{Link, Solo};
use corewire_optim::catalogue::WireKind;
use corewire_optim::replay::Facts;
use corewire_optim::run::Ended;

use crate::job::{Engine, Job};
use crate::memory;
use crate::progress::Phase;
use crate::recorder::Recorder;
use crate::session::{Done, Session, default_method, execute, hub_bytes};
use crate::units;

/// How a method would fare: from a trial of all rounds on one machine that holds all data, and of a few rounds on all machines.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The method.
    pub name: String,
    /// The budget it would take.
    pub budget: Option<usize>,
    /// Whether it reached the target in the trial.
    pub reached: bool,
    /// Whether the trial's time was up first.
    pub timed_out: bool,
    /// Rounds.
    pub rounds: f64,
    /// Exchanges, set-up included.
    pub exchanges: f64,
    /// Payload up, per machine.
    pub up_bytes: f64,
    /// Payload down, per machine.
    pub down_bytes: f64,
    /// Everything on the wire, both ways, per machine.
    pub wire_bytes: f64,
}

impl Forecast {
    /// Seconds on a link.
    pub fn seconds(&self, link: &Link) -> f64 {
        link.seconds(2.0 * self.exchanges, self.wire_bytes)
    }

    /// What it is judged by.
    pub fn cost(&self, job: &Job) -> f64 {
        match &job.method.settings.goal.link {
            _ if !self.reached => f64::INFINITY,
            Some(link) => self.seconds(link),
            None => self.wire_bytes,
        }
    }
}

/// Rounds of the trial that measures bytes, and those of them that are left out as start-up.
const SHORT: (u64, u64) = (40, 15);

fn try_out(session: &Session) -> Result<Done<Recorder>> {
    let solo = Solo::new(session.job.machines);
    let done = execute(session, solo, false, |_| Ok(Recorder::silent().keeping_records()), None)?;
    Ok(done.expect("machine 0 is in this process"))
}

/// Rounds after which a trial of core-newton is given up; softmax may take hundreds where L-BFGS does.
const MOST_NEWTON: u64 = 400;

/// Seconds that all trials may take together: of a sample, and of all rows, whose trials should not depend on what else the computer does.
const SECONDS: [f64; 2] = [8.0, 120.0];

/// Tries all of these methods, core-newton last. Each has its share of the time that the others left: core-newton, which is tried whole,
/// most.
pub fn forecasts(session: &Session, names: &[&str], is_sample: bool) -> Result<Vec<Forecast>> {
    let seconds = SECONDS[usize::from(!is_sample)];
    let (bar, begun) = (Phase::new(session.quiet, "trying", names.len() as u64), std::time::Instant::now());
    let one = |i: usize, name: &str| -> Result<Forecast> {
        bar.show((names.len() - i) as u64, || format!("{name}, at most {seconds} s for all"));
        let left = (seconds - begun.elapsed().as_secs_f64()).max(0.5) / (i + 1) as f64;
        let found = forecast(session, name, left)?;
        // Much detail tells whole Hessians, which grow with their rank.
        let told = if detail_of(name) > 10.0 { (session.rank_left_out - 1.0) * found.up_bytes } else { 0.0 };
        // Bytes of a gradient, sketched or not, go with the columns; rounds do not.
        let [up_bytes, down_bytes, wire_bytes] =
            [found.up_bytes + told, found.down_bytes, found.wire_bytes + told].map(|bytes| session.left_out * bytes);
        Ok(Forecast { up_bytes, down_bytes, wire_bytes, ..found })
    };
    // Much detail comes after less, and both after all others.
    let mut order: Vec<usize> = (0..names.len()).rev().collect();
    order.sort_by(|&a, &b| detail_of(names[a]).total_cmp(&detail_of(names[b])));
    let mut found: Vec<(usize, Forecast)> = Vec::new();
    for (done, &i) in order.iter().enumerate() {
        found.push((i, one(names.len() - done - 1, names[i])?));
    }
    found.sort_by_key(|(i, _)| *i);
    Ok(found.into_iter().map(|(_, forecast)| forecast).collect())
}

/// How many of how many rows were tried, in words; nothing where it was all of them.
pub fn told(sample: Option<&Session>, rows: usize) -> String {
    let Some((sample, pooled)) = sample.and_then(|sample| Some((sample, sample.pooled.as_ref()?))) else {
        return String::new();
    };
    let columns = match sample.left_out > 1.0 {
        true => format!(" with their {} commonest columns", pooled.problem.dim()),
        false => String::new(),
    };
    format!(" on a sample of {} of {rows} rows{columns}", pooled.problem.row_count())
}

/// Tries a method for at most so many seconds. Nothing of it is billed to a run.
fn forecast(session: &Session, name: &str, seconds: f64) -> Result<Forecast> {
    let mut trial = session.clone();
    trial.job.choose_method(name);
    // Over a tree the rounds are the same and the bytes in the same proportion; a trial through a hub tells enough.
    trial.job.graph = None;
    trial.job.problem.test = None;
    // A trial goes to the target, whatever else would end the run.
    (trial.job.stop.gap, trial.job.stop.gap_absolute) = (None, None);
    trial.job.stop.seconds = Some(seconds);
    // How core-newton fares depends on the machines' own curvature; it takes few rounds, and is tried whole.
    if name.starts_with("core-newton") {
        trial.job.stop.rounds = Some(MOST_NEWTON);
        let finish = try_out(&trial)?.finish;
        let passed = finish.last.traffic;
        return Ok(Forecast {
            name: name.to_owned(),
            budget: finish.settings.budget,
            // Where nobody knows f*, by its own estimate.
            reached: finish.ended.is_reached(),
            timed_out: finish.ended == Ended::Seconds,
            rounds: finish.last.round as f64,
            exchanges: passed.exchanges as f64,
            up_bytes: passed.up_bytes,
            down_bytes: passed.down_bytes,
            wire_bytes: passed.wire_bytes(),
        });
    }
    // Rounds do not depend on how the rows are divided: the mean gradient is the same, and so is the noise relative to it.
    trial.job.stop.seconds = Some(0.6 * seconds);
    let alone = try_out(&trial.with_machines(1))?.finish;
    // Bytes do.
    let rounds = alone.last.round;
    trial.job.stop.rounds = Some(SHORT.0.min(rounds));
    trial.job.stop.target = Some(0.0);
    trial.job.stop.seconds = Some(0.4 * seconds);
    let together = try_out(&trial)?;
    let records = &together.observer.records;
    let last = together.finish.last.traffic;
    let first = records.iter().find(|record| record.round == SHORT.1.min(rounds / 2)).map(|record| record.traffic);
    let run = together.finish.last.round;
    let extend = |then: f64, now: f64| {
        let skipped = SHORT.1.min(rounds / 2) as f64;
        let per = (now - then) / (run as f64 - skipped).max(1.0);
        now + per * (rounds - run.min(rounds)) as f64
    };
    let first = first.unwrap_or_default();
    Ok(Forecast {
        name: name.to_owned(),
        budget: alone.settings.budget,
        reached: alone.ended == Ended::Target,
        timed_out: alone.ended == Ended::Seconds,
        rounds: rounds as f64,
        exchanges: alone.last.traffic.exchanges as f64,
        up_bytes: extend(first.up_bytes, last.up_bytes),
        down_bytes: extend(first.down_bytes, last.down_bytes),
        wire_bytes: extend(first.wire_bytes(), last.wire_bytes()),
    })
}

/// core-newton with more and more detail. Where only bytes count the first is best; on a link more bytes may save seconds, most of all on a
/// quadratic, which enough detail solves in one exchange after set-up.
const NEWTON: [(&str, f64); 4] = [
    ("core-newton", 1.0),
    ("core-newton:detail=10", 10.0),
    ("core-newton:detail=100", 100.0),
    ("core-newton:detail=1e5", 1e5),
];

/// The detail of a form of core-newton; 0 for other methods.
pub fn detail_of(name: &str) -> f64 {
    NEWTON.iter().find(|(form, _)| *form == name).map_or(0.0, |(_, detail)| *detail)
}

/// The other exact methods that auto tries.
const SMOOTH: [&str; 4] = ["core-agd", "core-cg", "cg", "lbfgs"];

/// Those that have a proximal step.
const PROXIMAL: [&str; 3] = ["core-agd", "acgd", "cgd"];

/// Above so many columns machines take long to find much detail; the hub, which does not solve for P whole from 1600 on, would lose it, too.
const MOST_COLUMNS: usize = 800;
/// Machines and hub keep the rows of more detail, and a basis of their span.
const COPIES: f64 = 4.0;

/// Whether so much detail may save more than it costs on this link: at the very best some ten exchanges, for log10(detail) bits for each
/// number of a Hessian. The most detail is for quadratics; elsewhere the next Hessian is another.
fn may_pay(facts: &Facts, detail: f64, link: &Link) -> bool {
    let columns = facts.dim / facts.blocks;
    let told = (columns * columns) as f64 * detail.log10() / 8.0;
    let spared = link.seconds(20.0, 0.0);
    detail <= 10.0
        || columns <= MOST_COLUMNS && link.seconds(0.0, told) <= spared && (detail <= 100.0 || facts.quadratic)
}

/// The methods that auto tries on this problem: those that it has, and that there is memory for.
pub fn candidates(job: &Job, facts: &Facts, share: Option<usize>) -> Vec<&'static str> {
    let settings = &job.method.settings;
    let link = settings.goal.link.filter(|_| settings.curvature);
    let others: &[&str] = match job.stop.asks_for_gap() {
        Some(_) => &[],
        None if job.problem.proximal.is_none() => &SMOOTH,
        None => &PROXIMAL,
    };
    let fits = |detail: f64| {
        let copies = if detail > 1.0 { COPIES } else { 1.0 };
        copies * hub_bytes(facts, share, detail) <= memory::allowed(&job.limits) as f64
    };
    let newton = NEWTON.iter().filter(|(_, detail)| match link {
        _ if !job.problem.model.is_curved() || settings.wire != WireKind::Q || !fits(*detail) => false,
        _ if *detail == 1.0 => true,
        Some(link) => may_pay(facts, *detail, &link),
        None => false,
    });
    let newton = newton.map(|(name, _)| *name);
    newton.chain(others.iter().copied()).collect()
}

/// Settles `method.name = "auto"` where one process has all rows: whichever candidate costs least on the job's link, or in bytes without
/// one. Where the rows stay at their sites the machines settle it alike.
pub fn settle(mut session: Session) -> Result<Session> {
    if session.job.method.name.is_some() || session.pooled.is_none() {
        return Ok(session);
    }
    let problem = session.problem()?;
    let (facts, share) = (Facts::of(&*problem.objective(0), session.job.machines), problem.largest_share());
    let mut name = default_method(&facts, &session);
    if name == "core-newton" && !candidates(&session.job, &facts, share).contains(&name) {
        name = "core-agd";
    }
    // Whether f* can be known, here or on a sample.
    let solvable = facts.convex && facts.strong_convexity > 0.0 || session.optimum.is_some();
    let comparable = facts.convex && solvable && session.job.stop.target().is_some();
    // Gossip has no conjugate gradients to choose.
    if comparable && !session.gossips() && session.job.engine == Engine::Threads {
        let candidates = candidates(&session.job, &facts, share);
        let sample;
        (session, sample) = session.tried()?;
        let begun = std::time::Instant::now();
        let tried = sample.as_ref().unwrap_or(&session);
        let candidates = if tried.optimum.is_some() { candidates } else { Vec::new() };
        let forecasts = forecasts(tried, &candidates, sample.is_some())?;
        let costs: Vec<f64> = forecasts.iter().map(|forecast| forecast.cost(&session.job)).collect();
        let best = (0..costs.len()).filter(|&i| costs[i].is_finite()).min_by(|&a, &b| costs[a].total_cmp(&costs[b]));
        name = best.map_or(name, |best| candidates[best]);
        if !session.quiet && tried.optimum.is_none() {
            eprintln!("nothing was tried, because f* of a sample takes too long; {name} it is");
        } else if !session.quiet {
            let timed = session.job.method.settings.goal.link.is_some();
            let shown = |forecast: &Forecast, cost: f64| match (cost.is_finite(), timed) {
                (false, _) if forecast.timed_out => "has not ended in the time".to_owned(),
                (false, _) => "misses the target".to_owned(),
                (true, true) => units::seconds(cost),
                (true, false) => units::bytes(cost),
            };
            let tried: Vec<String> =
                forecasts.iter().zip(&costs).map(|(f, &cost)| format!("{} {}", f.name, shown(f, cost))).collect();
            let goal = if timed { "seconds on the link" } else { "bytes" };
            let verdict = match best {
                Some(_) => format!("{name} costs the fewest {goal}"),
                None => format!("none reached the target, so {name} it is"),
            };
            let how = told(sample.as_ref(), session.problem()?.row_count());
            eprintln!("tried{how}: {}; {verdict}", tried.join(", "));
        }
        session.phases.push(("choosing", begun.elapsed().as_secs_f64()));
    }
    session.job.choose_method(name);
    Ok(session)
}

#[cfg(test)]
mod tests {
    use corewire_optim::proximal::Proximal;

    use super::*;
    use crate::job;

    #[test]
    fn what_the_hub_would_have_no_memory_for_is_no_candidate() {
        let candidates = |memory: &str, more: &[&str]| {
            let mut keys = vec![format!("limits.memory={memory}"), "machines.count=200".to_owned()];
            keys.extend(more.iter().map(|key| (*key).to_owned()));
            let facts = Facts {
                dim: 5000,
                blocks: 1,
                machines: 200,
                strong_convexity: 1.0,
                quadratic: true,
                convex: true,
                trace_known: true,
                proximal: Proximal::NONE,
            };
            let share = more.contains(&"rows").then_some(10);
            keys.retain(|key| key != "rows");
            candidates(&job::load(None, &keys).unwrap(), &facts, share)
        };
        // 64 rows of 200 machines in 5000 columns are 512 MB.
        assert!(candidates("600000000", &[]).contains(&"core-newton"));
        assert!(!candidates("500000000", &[]).contains(&"core-newton"));
        assert!(candidates("500000000", &[]).contains(&"core-agd"));
        // Machines of ten rows each have no more rows of curvature.
        assert!(candidates("500000000", &["rows"]).contains(&"core-newton"));
        // It has no wire but q.
        assert!(!candidates("600000000", &["method.wire=f32"]).contains(&"core-newton"));
        // On a link more rows may be worth it: 640 of them, four times over.
        let link = ["link.mbit_s=10", "link.rtt_ms=40"];
        let detailed = |memory, more: &[&str]| candidates(memory, more).contains(&"core-newton:detail=10");
        assert!(detailed("21000000000", &link) && !detailed("20000000000", &link));
        assert!(
            !detailed("21000000000", &[])
                && !detailed("21000000000", &[&link[..], &["method.curvature=false"]].concat())
        );
    }

    #[test]
    fn detail_is_tried_where_it_may_pay() {
        let facts = |dim: usize, quadratic: bool| Facts {
            dim,
            blocks: 1,
            machines: 50,
            strong_convexity: 1e-3,
            quadratic,
            convex: true,
            trace_known: true,
            proximal: Proximal::NONE,
        };
        let link = |mbit_s: f64, rtt_ms: f64| Link { mbit_s, rtt_ms, overhead_bytes: 66.0 };
        // The whole of a small quadratic, on a link that waits longer for one exchange than it sends.
        assert!(may_pay(&facts(64, true), 1e5, &link(10.0, 100.0)));
        assert!(
            !may_pay(&facts(64, false), 1e5, &link(10.0, 100.0))
                && may_pay(&facts(64, false), 100.0, &link(10.0, 100.0))
        );
        // 400 kB take 3 s at 1 Mbit/s.
        assert!(
            may_pay(&facts(784, true), 1e5, &link(10.0, 40.0)) && !may_pay(&facts(784, true), 1e5, &link(1.0, 40.0))
        );
        assert!(
            !may_pay(&facts(2000, true), 100.0, &link(1000.0, 100.0))
                && may_pay(&facts(2000, true), 10.0, &link(1000.0, 100.0))
        );
    }
}
