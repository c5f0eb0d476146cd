//! Which keys are asked for: drawn before anything is measured, because drawing costs as much as a get.

/// How keys are drawn.
#[derive(Clone, Copy)]
pub enum Law {
    Uniform,
    /// Exponent 0.99: of a million keys the first thousand get half of all draws.
    Zipf,
}

impl Law {
    pub fn name(self) -> &'static str {
        match self {
            Law::Uniform => "uniform",
            Law::Zipf => "zipf",
        }
    }
}

const COUNT: usize = 1 << 21;
const EXPONENT: f64 = 0.99;

/// Numbers of keys, in the order in which they are asked for; each process begins elsewhere in them.
pub struct Draws(Vec<u32>);

impl Draws {
    pub fn by(law: Law, keys: u32) -> Draws {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut fraction = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let sums = match law {
            Law::Uniform => Vec::new(),
            Law::Zipf => sums(keys),
        };
        let total = sums.last().copied().unwrap_or(0.0);
        let draw = |_| {
            let drawn = fraction();
            match law {
                Law::Uniform => (drawn * f64::from(keys)) as u32,
                Law::Zipf => scattered(sums.partition_point(|&sum| sum < drawn * total) as u32, keys),
            }
        };
        Draws((0..COUNT).map(draw).collect())
    }

    pub fn from(&self, process: usize) -> impl Iterator<Item = u32> + '_ {
        let start = process * COUNT / 8 % COUNT;
        self.0.iter().copied().cycle().skip(start)
    }
}

fn sums(keys: u32) -> Vec<f64> {
    let weights = (1..=keys).map(|rank| f64::from(rank).powf(-EXPONENT));
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

/// Frequent keys are not neighbours.
fn scattered(rank: u32, keys: u32) -> u32 {
    (u64::from(rank) * 7_368_787 % u64::from(keys)) as u32
}
