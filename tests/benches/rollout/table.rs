//! The table of one size: what each phase cost for each cluster, and how that grew since the former
//! size. What is constant for each cluster grows by x1.0; what is quadratic in all grows as the
//! number of clusters does.

use std::time::Duration;

use crate::layout::Layout;
use crate::pace::Pace;

/// What a phase cost.
pub struct Cost {
    /// Its time.
    pub time: Duration,
    /// Number of requests.
    pub requests: usize,
    /// CPU time of the operator.
    pub cpu: Duration,
    /// Memory of the operator, without that of one without clusters, in KiB.
    pub memory: u64,
}

/// Requests, milliseconds of CPU time, and KiB of a cluster.
type Each = [f64; 3];

/// A table.
pub struct Table {
    clusters: usize,
    rows: Vec<Each>,
    former: Vec<Each>,
}

impl Table {
    /// Prints the head of the table for `layout`, which comes after `former`.
    pub fn new(layout: Layout, former: Option<Self>) -> Self {
        let Layout { clusters, fleets } = layout;
        println!("\n{clusters} clusters; fleets: {fleets}; stages of each: {}", layout.stages());
        let line = |cells: [&str; 7]| {
            let [title, time, requests, cpu, memory, pace, growth] = cells;
            println!("{title:<44} {time:>8} {requests:>9} {cpu:>10} {memory:>10} {pace:>18} {growth:>20}");
        };
        line(["", "time", "requests", "CPU", "memory", "over need;", "growth of requests,"]);
        line(["", "", "each", "each", "each", "next p50/p99", "CPU, memory each"]);
        Self { clusters, rows: Vec::new(), former: former.map(|former| former.rows).unwrap_or_default() }
    }

    /// Prints a row, and `note` after it.
    pub fn row(&mut self, title: &str, cost: &Cost, pace: Option<Pace>, note: &str) {
        let clusters = float(self.clusters as u64);
        let millis = cost.cpu.as_secs_f64() * 1000.0;
        let each = [float(cost.requests as u64), millis, float(cost.memory)].map(|all| all / clusters);
        let growth = self.former.get(self.rows.len()).map(|former| growth(former, &each));
        let [requests, cpu, memory] = each;
        println!(
            "{title:<44} {:>7.1}s {requests:>9.2} {cpu:>7.1} ms {memory:>6.0} KiB {:>18} {:>20}  {note}",
            cost.time.as_secs_f64(),
            pace.map_or_else(|| "-".to_owned(), |pace| pace.to_string()),
            growth.unwrap_or_else(|| "-".to_owned()),
        );
        self.rows.push(each);
    }
}

/// Prints `text` below a row.
pub fn note(text: &str) {
    println!("{:<44} {text}", "");
}

fn growth(former: &Each, new: &Each) -> String {
    let factor = |(former, new): (&f64, &f64)| {
        if *former > 0.0 { format!("x{:.1}", new / former) } else { "-".to_owned() }
    };
    former.iter().zip(new).map(factor).collect::<Vec<_>>().join(" ")
}

#[allow(clippy::cast_precision_loss)] // for people
fn float(count: u64) -> f64 {
    count as f64
}
