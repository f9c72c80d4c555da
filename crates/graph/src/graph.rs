//! Who can talk to whom: connected undirected graphs of machines, what their spectrum says about gossip, their spanning trees and
//! their pictures. What travels along the edges belongs to [`crate::gossip`].

use std::collections::VecDeque;
use std::fmt::Write as _;

use corewire_algebra::eigen;
use corewire_sketch::{CommonRandomness, Purpose};

/// Why a graph cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// A hypercube of a number that is no power of two.
    #[error("a hypercube has a power of two machines; found {0}")]
    NotAPower(usize),
    /// A graph of fewer than two machines, or with more than can be counted.
    #[error("the graph has {0} machines, and must have from 2 to {MOST_MACHINES}")]
    Size(usize),
    /// Not in one piece.
    #[error("the graph is not connected: machine {0} cannot be reached from machine 0; add an edge")]
    Disconnected(usize),
    /// A regular graph that cannot exist or is not connected.
    #[error(
        "no connected graph of {machines} machines has degree {degree} everywhere: the degree must be below the number of machines, \
         at least 2 (1 for two machines), and degree times machines even"
    )]
    Degree {
        /// How many machines were asked for.
        machines: usize,
        /// How many neighbours each was to have.
        degree: usize,
    },
    /// Not a probability of an edge.
    #[error("the probability of an edge is {0}, and must be above 0 and at most 1")]
    Probability(f64),
    /// Chance did not give a connected graph.
    #[error(
        "none of {attempts} random graphs was connected; raise the probability of an edge above ln(n)/n = {needed:.4}"
    )]
    Chance {
        /// How many graphs were drawn.
        attempts: u64,
        /// The probability from which on most graphs are connected.
        needed: f64,
    },
    /// A hypercube too large to list.
    #[error("a hypercube of dimension {0} cannot be built; the dimension must be from 1 to 12")]
    Dimension(u32),
    /// An edge that ends outside the graph or at its own start.
    #[error("the edge {from} - {to} does not join two different machines below {machines}")]
    Edge {
        /// One end.
        from: usize,
        /// The other end.
        to: usize,
        /// How many machines the graph has.
        machines: usize,
    },
    /// A line of an edge list that cannot be read.
    #[error("line {line}: {what}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it, and what was expected.
        what: String,
    },
}

/// The largest number of machines in a graph.
pub const MOST_MACHINES: usize = 4096;

/// How a picture arranges the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Circle,
    /// Machine 0 in the middle, the others around it.
    Star,
    /// Row by row.
    Grid {
        columns: usize,
    },
}

/// A connected undirected graph of at least two machines, without loops or double edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Each machine's neighbours, in ascending order.
    neighbours: Vec<Vec<usize>>,
    layout: Layout,
}

impl Graph {
    /// The graph of these edges; an edge that is named twice, in either direction, counts once.
    pub fn from_edges(machines: usize, edges: &[(usize, usize)]) -> Result<Self, GraphError> {
        Self::with_layout(machines, edges.iter().copied(), Layout::Circle)
    }

    /// Every machine talks to the next one, the last to the first.
    pub fn ring(machines: usize) -> Result<Self, GraphError> {
        Self::with_layout(machines, (0..machines).map(|i| (i, (i + 1) % machines)), Layout::Circle)
    }

    /// Every machine talks to the next one, the last to nobody further.
    pub fn path(machines: usize) -> Result<Self, GraphError> {
        // A long path is drawn as an open circle rather than as a line that needs scrolling.
        let layout = if machines <= 16 { Layout::Grid { columns: machines.max(1) } } else { Layout::Circle };
        Self::with_layout(machines, (1..machines).map(|i| (i - 1, i)), layout)
    }

    /// Rows and columns of machines, each talking to those beside, above and below it.
    pub fn grid(rows: usize, columns: usize) -> Result<Self, GraphError> {
        let machines = product(rows, columns)?;
        let across = (0..machines).filter(|i| (i + 1) % columns != 0).map(|i| (i, i + 1));
        let down = (columns..machines).map(|i| (i - columns, i));
        Self::with_layout(machines, across.chain(down), Layout::Grid { columns })
    }

    /// A grid whose rows and columns are rings.
    pub fn torus(rows: usize, columns: usize) -> Result<Self, GraphError> {
        let machines = product(rows, columns)?;
        let edges = (0..machines).flat_map(|i| {
            let (row, column) = (i / columns, i % columns);
            [(i, row * columns + (column + 1) % columns), (i, (row + 1) % rows * columns + column)]
        });
        // A row of one or two machines has no ring of its own.
        Self::with_layout(machines, edges.filter(|(i, j)| i != j), Layout::Grid { columns })
    }

    /// Machine 0 talks to everybody, the others to machine 0 only.
    pub fn star(machines: usize) -> Result<Self, GraphError> {
        Self::with_layout(machines, (1..machines).map(|i| (0, i)), Layout::Star)
    }

    /// Everybody talks to everybody.
    pub fn complete(machines: usize) -> Result<Self, GraphError> {
        Self::with_layout(machines, (0..machines).flat_map(|i| (0..i).map(move |j| (j, i))), Layout::Circle)
    }

    /// 2^dimension machines, each talking to those whose number differs from its own in one bit.
    pub fn hypercube(dimension: u32) -> Result<Self, GraphError> {
        if !(1..=12).contains(&dimension) {
            return Err(GraphError::Dimension(dimension));
        }
        let machines = 1 << dimension;
        let edges = (0..machines).flat_map(|i| (0..dimension).map(move |bit| (i, i ^ (1 << bit))));
        Self::with_layout(machines, edges, Layout::Circle)
    }

    /// A random connected graph in which every machine has `degree` neighbours: half edges are paired at random, pairs which would
    /// make a loop or a double edge are put back, and a pairing that gets stuck or is not connected is drawn again (Steger and Wormald).
    pub fn random_regular(machines: usize, degree: usize, randomness: &CommonRandomness) -> Result<Self, GraphError> {
        checked_size(machines)?;
        let connected_at_all = degree >= 2 || (degree == 1 && machines == 2);
        if degree >= machines || !connected_at_all || machines * degree % 2 == 1 {
            return Err(GraphError::Degree { machines, degree });
        }
        for attempt in 0..ATTEMPTS {
            let mut words = randomness.words(Purpose::Graph, attempt, REGULAR_ROW);
            if let Some(edges) = pair_half_edges(machines, degree, &mut words)
                && let Ok(graph) = Self::from_edges(machines, &edges)
            {
                return Ok(graph);
            }
        }
        Err(GraphError::Degree { machines, degree })
    }

    /// A random graph in which each pair talks with this probability, drawn again until it is connected.
    pub fn erdos_renyi(machines: usize, probability: f64, randomness: &CommonRandomness) -> Result<Self, GraphError> {
        checked_size(machines)?;
        if !(probability > 0.0 && probability <= 1.0) {
            return Err(GraphError::Probability(probability));
        }
        for attempt in 0..ATTEMPTS {
            let mut words = randomness.words(Purpose::Graph, attempt, ERDOS_RENYI_ROW);
            let pairs = (0..machines).flat_map(|i| (0..i).map(move |j| (j, i)));
            let edges: Vec<_> = pairs.filter(|_| words.next_coin(probability)).collect();
            if let Ok(graph) = Self::from_edges(machines, &edges) {
                return Ok(graph);
            }
        }
        Err(GraphError::Chance { attempts: ATTEMPTS, needed: (machines as f64).ln() / machines as f64 })
    }

    /// The graph of this name: ring, path, grid, torus, star, complete, hypercube, regular or erdos-renyi. Grids are as square as they can
    /// be.
    pub fn named(
        name: &str,
        machines: usize,
        degree: usize,
        probability: f64,
        randomness: &CommonRandomness,
    ) -> Result<Self, GraphError> {
        let rows = (1..=machines).rfind(|rows| machines.is_multiple_of(*rows) && rows * rows <= machines).unwrap_or(1);
        match name {
            "path" => Self::path(machines),
            "grid" => Self::grid(rows, machines / rows),
            "torus" => Self::torus(rows, machines / rows),
            "star" => Self::star(machines),
            "complete" => Self::complete(machines),
            "hypercube" if machines.is_power_of_two() => Self::hypercube(machines.trailing_zeros()),
            "hypercube" => Err(GraphError::NotAPower(machines)),
            "regular" => Self::random_regular(machines, degree, randomness),
            "erdos-renyi" => Self::erdos_renyi(machines, probability, randomness),
            _ => Self::ring(machines),
        }
    }

    /// Reads an edge list: two machine numbers per line, from 0, separated by blanks or a comma; empty lines and what follows a `#` are
    /// ignored. The number of machines is the largest number and one.
    pub fn parse_edges(text: &str) -> Result<Self, GraphError> {
        let mut edges = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let fail = |what: String| GraphError::Line { line: index + 1, what };
            let content = content.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = content.split([' ', '\t', ',', '\r']).filter(|field| !field.is_empty()).collect();
            if fields.is_empty() {
                continue;
            }
            let [from, to] = fields[..] else {
                return Err(fail(format!(
                    "{} fields where two machine numbers are expected, as in `0 1`",
                    fields.len()
                )));
            };
            let machine = |field: &str| match field.parse::<usize>() {
                Ok(machine) if machine < MOST_MACHINES => Ok(machine),
                Ok(machine) => Err(fail(format!("machine {machine} is beyond the largest, {}", MOST_MACHINES - 1))),
                Err(_) => Err(fail(format!("`{}` is not a machine number (0, 1, 2, ...)", field.escape_debug()))),
            };
            let (from, to) = (machine(from)?, machine(to)?);
            if from == to {
                return Err(fail(format!("machine {from} is joined to itself")));
            }
            edges.push((from, to));
        }
        let machines = edges.iter().map(|&(from, to)| from.max(to) + 1).max().unwrap_or(0);
        Self::from_edges(machines, &edges)
    }

    fn with_layout(
        machines: usize,
        edges: impl Iterator<Item = (usize, usize)>,
        layout: Layout,
    ) -> Result<Self, GraphError> {
        checked_size(machines)?;
        let mut neighbours = vec![Vec::new(); machines];
        for (from, to) in edges {
            if from == to || from >= machines || to >= machines {
                return Err(GraphError::Edge { from, to, machines });
            }
            neighbours[from].push(to);
            neighbours[to].push(from);
        }
        for list in &mut neighbours {
            list.sort_unstable();
            list.dedup();
        }
        let graph = Self { neighbours, layout };
        match graph.distances(0).iter().position(Option::is_none) {
            Some(lost) => Err(GraphError::Disconnected(lost)),
            None => Ok(graph),
        }
    }

    /// How many machines there are.
    pub fn machines(&self) -> usize {
        self.neighbours.len()
    }

    /// The neighbours of a machine, in ascending order.
    pub fn neighbours(&self, machine: usize) -> &[usize] {
        &self.neighbours[machine]
    }

    /// How many neighbours a machine has.
    pub fn degree(&self, machine: usize) -> usize {
        self.neighbours[machine].len()
    }

    /// How many edges there are.
    pub fn edge_count(&self) -> usize {
        self.neighbours.iter().map(Vec::len).sum::<usize>() / 2
    }

    /// The edges, each once with its smaller end first, in ascending order.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.neighbours
            .iter()
            .enumerate()
            .flat_map(|(i, list)| list.iter().filter(move |&&j| i < j).map(move |&j| (i, j)))
    }

    /// The Laplacian, row by row: degrees on the diagonal, -1 for each edge.
    pub fn laplacian(&self) -> Vec<f64> {
        let machines = self.machines();
        let mut matrix = vec![0.0; machines * machines];
        for (i, list) in self.neighbours.iter().enumerate() {
            matrix[i * machines + i] = list.len() as f64;
            for &j in list {
                matrix[i * machines + j] = -1.0;
            }
        }
        matrix
    }

    /// Metropolis weights, row by row: `1/(1 + max(degrees))` for each edge and what is left to 1 on the diagonal; a symmetric doubly
    /// stochastic matrix that each machine can compute from its own and its neighbours' degrees.
    pub fn metropolis(&self) -> Vec<f64> {
        let machines = self.machines();
        let mut matrix = vec![0.0; machines * machines];
        for (i, list) in self.neighbours.iter().enumerate() {
            for &j in list {
                let weight = 1.0 / (1 + self.degree(i).max(self.degree(j))) as f64;
                matrix[i * machines + j] = weight;
            }
            matrix[i * machines + i] = 1.0 - list.iter().map(|&j| matrix[i * machines + j]).sum::<f64>();
        }
        matrix
    }

    /// All eigenvalues of the Laplacian, ascending. Dense: it takes 8 n² bytes and time in proportion to n³ (seconds at 2000 machines).
    pub fn laplacian_eigenvalues(&self) -> Vec<f64> {
        let machines = self.machines();
        let entry = |i: usize, j: usize| {
            if i == j { self.degree(i) as f64 } else { -f64::from(self.neighbours[i].binary_search(&j).is_ok()) }
        };
        let laplacian = (0..machines * machines).map(|at| entry(at / machines, at % machines)).collect();
        let mut eigenvalues = eigen::values(laplacian, machines);
        eigenvalues.sort_unstable_by(f64::total_cmp);
        eigenvalues
    }

    /// What the speed of gossip depends on.
    pub fn spectrum(&self) -> LaplacianSpectrum {
        let eigenvalues = self.laplacian_eigenvalues();
        LaplacianSpectrum { second: eigenvalues[1], largest: eigenvalues[eigenvalues.len() - 1] }
    }

    /// The largest number of edges between two machines.
    pub fn diameter(&self) -> usize {
        (0..self.machines()).flat_map(|start| self.distances(start)).flatten().max().unwrap_or(0)
    }

    /// The tree of shortest paths to `root`, found breadth first; among equals the smallest parent wins, so that every machine that
    /// knows the graph finds the same tree.
    ///
    /// # Panics
    /// If there is no such machine.
    pub fn spanning_tree(&self, root: usize) -> SpanningTree {
        assert!(root < self.machines(), "the root is a machine of the graph");
        let mut tree = SpanningTree {
            parents: vec![None; self.machines()],
            children: vec![Vec::new(); self.machines()],
            depths: vec![0; self.machines()],
            order: vec![root],
        };
        let mut next = 0;
        while let Some(&machine) = tree.order.get(next) {
            next += 1;
            for &neighbour in &self.neighbours[machine] {
                if neighbour != root && tree.parents[neighbour].is_none() {
                    tree.parents[neighbour] = Some(machine);
                    tree.children[machine].push(neighbour);
                    tree.depths[neighbour] = tree.depths[machine] + 1;
                    tree.order.push(neighbour);
                }
            }
        }
        tree
    }

    /// A spanning tree whose root is in the middle (the least largest distance, the smallest such machine), so that a sum takes the
    /// fewest hops one after the other.
    pub fn central_tree(&self) -> SpanningTree {
        let reach = |machine: usize| self.distances(machine).into_iter().flatten().max().unwrap_or(0);
        let root = (0..self.machines()).min_by_key(|&machine| reach(machine)).unwrap_or(0);
        self.spanning_tree(root)
    }

    fn distances(&self, start: usize) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.machines()];
        distances[start] = Some(0);
        let mut queue = VecDeque::from([(start, 0)]);
        while let Some((machine, distance)) = queue.pop_front() {
            for &neighbour in &self.neighbours[machine] {
                if distances[neighbour].is_none() {
                    distances[neighbour] = Some(distance + 1);
                    queue.push_back((neighbour, distance + 1));
                }
            }
        }
        distances
    }

    /// A picture as SVG, legible on light and dark ground: grids and tori as grids (an edge around the back is an arc), stars as
    /// stars, all others on a circle. Machines carry their numbers up to 64 of them.
    pub fn to_svg(&self) -> String {
        let positions = self.positions();
        let numbered = self.machines() <= 64;
        let radius = if numbered { 13.0 } else { 4.0 };
        let margin = radius + 26.0;
        let extent = |of: fn(&(f64, f64)) -> f64| {
            let values = positions.iter().map(of);
            (values.clone().fold(f64::INFINITY, f64::min) - margin, values.fold(f64::NEG_INFINITY, f64::max) + margin)
        };
        let ((left, right), (top, bottom)) = (extent(|p| p.0), extent(|p| p.1));
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"{left:.1} {top:.1} {:.1} {:.1}\">\n\
             <title>{} machines, {} edges</title>\n\
             <style>.edge{{fill:none;stroke:#7a8699;stroke-width:1.4;stroke-opacity:.75}}\
             .machine{{fill:#2563a8;stroke:#ffffff;stroke-width:1.5}}\
             .number{{fill:#ffffff;font:600 11px system-ui,sans-serif;text-anchor:middle;dominant-baseline:central}}\
             @media (prefers-color-scheme:dark){{.edge{{stroke:#9aa7ba}}.machine{{fill:#8ab8ee;stroke:#10151d}}.number{{fill:#10151d}}}}</style>\n",
            right - left,
            bottom - top,
            self.machines(),
            self.edge_count(),
        );
        for (i, j) in self.edges() {
            let ((x0, y0), (x1, y1)) = (positions[i], positions[j]);
            if self.goes_around(i, j) {
                // Led beside its row or column, or it would run through the machines between its ends.
                let length = (x1 - x0).hypot(y1 - y0);
                let (along_x, along_y) = ((x1 - x0) / length * 28.0, (y1 - y0) / length * 28.0);
                let (aside_x, aside_y) = (-along_y * 0.8, along_x * 0.8);
                let point = |x: f64, y: f64| format!("{:.1} {:.1}", x + aside_x, y + aside_y);
                let _ = writeln!(
                    svg,
                    "<path class=\"edge\" d=\"M{x0:.1} {y0:.1}Q{} {}L{}Q{} {x1:.1} {y1:.1}\"/>",
                    point(x0, y0),
                    point(x0 + along_x, y0 + along_y),
                    point(x1 - along_x, y1 - along_y),
                    point(x1, y1),
                );
            } else {
                let _ = writeln!(svg, "<path class=\"edge\" d=\"M{x0:.1} {y0:.1}L{x1:.1} {y1:.1}\"/>");
            }
        }
        for (machine, (x, y)) in positions.iter().enumerate() {
            let _ = writeln!(svg, "<circle class=\"machine\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>");
            if numbered {
                let _ = writeln!(svg, "<text class=\"number\" x=\"{x:.1}\" y=\"{y:.1}\">{machine}</text>");
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Whether a grid's edge joins the ends of a row or a column of more than two.
    fn goes_around(&self, i: usize, j: usize) -> bool {
        let Layout::Grid { columns } = self.layout else { return false };
        (i / columns).abs_diff(j / columns) > 1 || (i % columns).abs_diff(j % columns) > 1
    }

    fn positions(&self) -> Vec<(f64, f64)> {
        const SPACING: f64 = 56.0;
        let around = |index: usize, count: usize| {
            let angle = std::f64::consts::TAU * index as f64 / count as f64;
            let spacing = if self.machines() <= 64 { 40.0 } else { 12.0 };
            let radius = (spacing * count as f64 / std::f64::consts::TAU).max(70.0);
            (radius * angle.sin(), -radius * angle.cos())
        };
        let machines = self.machines();
        match self.layout {
            Layout::Circle => (0..machines).map(|i| around(i, machines)).collect(),
            Layout::Star => {
                std::iter::once((0.0, 0.0)).chain((1..machines).map(|i| around(i - 1, machines - 1))).collect()
            }
            Layout::Grid { columns } => {
                (0..machines).map(|i| ((i % columns) as f64 * SPACING, (i / columns) as f64 * SPACING)).collect()
            }
        }
    }
}

/// The two eigenvalues of a connected graph's Laplacian on which gossip depends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaplacianSpectrum {
    second: f64,
    largest: f64,
}

impl LaplacianSpectrum {
    /// The second smallest eigenvalue, above 0 because the graph is connected.
    pub fn second(&self) -> f64 {
        self.second
    }

    /// The largest eigenvalue.
    pub fn largest(&self) -> f64 {
        self.largest
    }

    /// γ = λ₂/λ_max, at most 1; 1 on complete graphs.
    pub fn gamma(&self) -> f64 {
        (self.second / self.largest).min(1.0)
    }
}

/// A spanning tree, and with it a schedule for an exact sum: up from the leaves to the root, then down again, 2(n-1) messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanningTree {
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    depths: Vec<usize>,
    order: Vec<usize>,
}

impl SpanningTree {
    /// The machine at which the sum comes together.
    pub fn root(&self) -> usize {
        self.order[0]
    }

    /// To whom a machine sends on the way up; nobody for the root.
    pub fn parent(&self, machine: usize) -> Option<usize> {
        self.parents[machine]
    }

    /// From whom a machine receives on the way up, in ascending order.
    pub fn children(&self, machine: usize) -> &[usize] {
        &self.children[machine]
    }

    /// How many hops a machine is from the root.
    pub fn depth(&self, machine: usize) -> usize {
        self.depths[machine]
    }

    /// How many hops the farthest machine is from the root: a sum takes twice as many messages one after the other.
    pub fn height(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(0)
    }

    /// How many machines the tree joins.
    pub fn machines(&self) -> usize {
        self.order.len()
    }

    /// How many messages a sum that everybody learns takes: 2(n-1).
    pub fn messages(&self) -> usize {
        2 * (self.order.len() - 1)
    }
}

/// How many random graphs are drawn before chance is given up.
const ATTEMPTS: u64 = 1000;
/// The rows of the addresses of random graphs: one a kind.
const REGULAR_ROW: u32 = 1;
const ERDOS_RENYI_ROW: u32 = 2;

fn checked_size(machines: usize) -> Result<(), GraphError> {
    if (2..=MOST_MACHINES).contains(&machines) { Ok(()) } else { Err(GraphError::Size(machines)) }
}

fn product(rows: usize, columns: usize) -> Result<usize, GraphError> {
    let machines = rows.saturating_mul(columns);
    checked_size(machines).map(|()| machines)
}

fn pair_half_edges(machines: usize, degree: usize, words: &mut corewire_sketch::Words) -> Option<Vec<(usize, usize)>> {
    let mut half_edges: Vec<usize> = (0..machines * degree).map(|half| half / degree).collect();
    let mut neighbours = vec![Vec::with_capacity(degree); machines];
    let mut edges = Vec::with_capacity(machines * degree / 2);
    while !half_edges.is_empty() {
        words.shuffle(&mut half_edges);
        let mut left = Vec::new();
        for pair in half_edges.chunks_exact(2) {
            let (i, j) = (pair[0], pair[1]);
            if i == j || neighbours[i].contains(&j) {
                left.extend([i, j]);
            } else {
                neighbours[i].push(j);
                neighbours[j].push(i);
                edges.push((i, j));
            }
        }
        let suitable = |&i: &usize| left.iter().any(|&j| i != j && !neighbours[i].contains(&j));
        if !left.is_empty() && !left.iter().any(suitable) {
            return None;
        }
        half_edges = left;
    }
    Some(edges)
}

/// What the tests of this crate ask of graphs and trees.
#[cfg(test)]
impl Graph {
    /// The edge list which [`Graph::parse_edges`] reads.
    fn to_edge_list(&self) -> String {
        self.edges().fold(String::new(), |mut text, (i, j)| {
            let _ = writeln!(text, "{i} {j}");
            text
        })
    }
}

#[cfg(test)]
impl SpanningTree {
    /// How many blocks pass in a sum that is gathered at the root and sent down: each machine's once a hop up, the sum once an edge.
    pub(crate) fn gathered_blocks(&self) -> usize {
        self.depths.iter().sum::<usize>() + self.machines() - 1
    }

    /// The way down, as messages (from, to): each machine receives before it sends.
    pub(crate) fn down_sweep(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.order.iter().filter_map(|&machine| self.parents[machine].map(|parent| (parent, machine)))
    }

    /// The way up, as messages (from, to): each machine has heard all its children before it sends.
    pub(crate) fn up_sweep(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.order.iter().rev().filter_map(|&machine| self.parents[machine].map(|parent| (machine, parent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewire_sketch::Seed;
    use std::f64::consts::PI;

    fn randomness(seed: u64) -> CommonRandomness {
        CommonRandomness::new(&Seed::reproducible(seed))
    }

    fn line(text: &str) -> (usize, String) {
        match Graph::parse_edges(text).unwrap_err() {
            GraphError::Line { line, what } => (line, what),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_spectra_of_known_graphs_are_the_known_ones() {
        let path = |n: usize, k: usize| 2.0 - 2.0 * (PI * k as f64 / n as f64).cos();
        let ring = |n: usize, k: usize| 2.0 - 2.0 * (2.0 * PI * k as f64 / n as f64).cos();
        let mut known = vec![(Graph::grid(3, 7), path(7, 1), path(3, 2) + path(7, 6))];
        known.push((Graph::torus(4, 9), ring(9, 1), ring(4, 2) + ring(9, 4)));
        for n in [2, 3, 4, 9, 16, 31] {
            known.push((Graph::path(n), path(n, 1), path(n, n - 1)));
            known.push((Graph::complete(n), n as f64, n as f64));
            if n > 2 {
                known.push((Graph::ring(n), ring(n, 1), ring(n, n / 2)));
                known.push((Graph::star(n), 1.0, n as f64));
            }
        }
        for dimension in 1..7 {
            known.push((Graph::hypercube(dimension), 2.0, 2.0 * f64::from(dimension)));
        }
        for (graph, second, largest) in known {
            let graph = graph.unwrap();
            let spectrum = graph.spectrum();
            // The eigenvalue solver is backward stable: some 1e-15 of the norm, which is at most 64 here.
            assert!((spectrum.second() - second).abs() < 1e-12, "{}: {spectrum:?}", graph.machines());
            assert!((spectrum.largest() - largest).abs() < 1e-12, "{}: {spectrum:?}", graph.machines());
            assert!((spectrum.gamma() - second / largest).abs() < 1e-12);
        }
    }

    #[test]
    fn diameters_and_edges_of_known_graphs_are_the_known_ones() {
        let known = [
            (Graph::ring(9), 4, 9),
            (Graph::ring(2), 1, 1),
            (Graph::path(9), 8, 8),
            (Graph::grid(3, 5), 6, 22),
            (Graph::grid(1, 5), 4, 4),
            (Graph::torus(4, 6), 5, 48),
            (Graph::torus(2, 3), 2, 9),
            (Graph::torus(1, 5), 2, 5),
            (Graph::star(7), 2, 6),
            (Graph::complete(7), 1, 21),
            (Graph::hypercube(5), 5, 80),
        ];
        for (graph, diameter, edges) in known {
            let graph = graph.unwrap();
            assert_eq!((graph.diameter(), graph.edge_count(), graph.edges().count()), (diameter, edges, edges));
        }
    }

    #[test]
    fn random_graphs_depend_on_the_seed_alone() {
        for (machines, degree) in [(2, 1), (4, 3), (10, 3), (50, 4), (51, 6), (20, 19), (20, 17)] {
            let graph = Graph::random_regular(machines, degree, &randomness(1)).unwrap();
            assert!((0..machines).all(|i| graph.degree(i) == degree), "{machines} {degree}");
            assert_eq!(graph, Graph::random_regular(machines, degree, &randomness(1)).unwrap());
        }
        let regular = |seed| Graph::random_regular(40, 3, &randomness(seed)).unwrap();
        assert_ne!(regular(1), regular(2));
        let sparse = |seed| Graph::erdos_renyi(40, 0.12, &randomness(seed)).unwrap();
        assert_eq!(sparse(3), sparse(3));
        assert_ne!(sparse(3), sparse(4));
        // 780 pairs at 0.12: 94 edges, standard deviation 9; the seed is fixed.
        assert!((sparse(3).edge_count() as f64 - 93.6).abs() < 4.0 * 9.1);
    }

    #[test]
    fn graphs_that_cannot_be_are_refused_in_words() {
        assert_eq!(Graph::ring(1).unwrap_err(), GraphError::Size(1));
        assert_eq!(Graph::grid(0, 5).unwrap_err(), GraphError::Size(0));
        assert_eq!(Graph::torus(usize::MAX, 2).unwrap_err(), GraphError::Size(usize::MAX));
        assert_eq!(Graph::hypercube(0).unwrap_err(), GraphError::Dimension(0));
        assert_eq!(Graph::from_edges(4, &[(0, 1), (2, 3)]).unwrap_err(), GraphError::Disconnected(2));
        assert!(matches!(Graph::from_edges(3, &[(0, 3)]).unwrap_err(), GraphError::Edge { .. }));
        for (machines, degree) in [(5, 3), (5, 5), (6, 1), (6, 0)] {
            let error = Graph::random_regular(machines, degree, &randomness(1)).unwrap_err();
            assert_eq!(error, GraphError::Degree { machines, degree });
        }
        assert!(matches!(Graph::erdos_renyi(9, 0.0, &randomness(1)).unwrap_err(), GraphError::Probability(_)));
        assert!(matches!(Graph::erdos_renyi(50, 0.001, &randomness(1)).unwrap_err(), GraphError::Chance { .. }));
    }

    #[test]
    fn an_edge_list_is_read_and_written() {
        let graph =
            Graph::parse_edges("# a triangle with a tail\n0 1\n1,2\r\n\n 2\t0  # closes it\n2 3\n3 2\n").unwrap();
        assert_eq!((graph.machines(), graph.edge_count()), (4, 4));
        assert_eq!(graph.neighbours(2), [0, 1, 3]);
        assert_eq!(Graph::parse_edges(&graph.to_edge_list()).unwrap(), graph);
    }

    #[test]
    fn errors_of_an_edge_list_name_the_line() {
        assert_eq!(line("0 1\n1 2 3\n").0, 2);
        assert_eq!(line("0 1\n\n# fine\n1\n").0, 4);
        let (number, what) = line("0 1\n1 two\n");
        assert!(number == 2 && what.contains("`two`"), "{what}");
        let (number, what) = line("0 1\n1 -2\n");
        assert!(number == 2 && what.contains("`-2`"), "{what}");
        assert!(line("5 5").1.contains("itself"));
        assert!(line("0 99999999").1.contains("beyond"));
        assert!(line("0 99999999999999999999999").1.contains("not a machine number"));
        assert_eq!(Graph::parse_edges("").unwrap_err(), GraphError::Size(0));
        assert_eq!(Graph::parse_edges("0 1\n3 4").unwrap_err(), GraphError::Disconnected(2));
    }

    #[test]
    fn no_text_makes_the_reader_panic() {
        let mut words = randomness(6).words(Purpose::Graph, 0, 5);
        let alphabet = ['0', '1', '2', '9', ' ', ',', '\n', '\r', '\t', '#', '-', 'x', 'é', '\u{0}'];
        for _ in 0..2000 {
            let length = words.next_below(40);
            let text: String =
                (0..length).map(|_| alphabet[words.next_below(alphabet.len() as u64) as usize]).collect();
            if let Ok(graph) = Graph::parse_edges(&text) {
                assert_eq!(Graph::parse_edges(&graph.to_edge_list()).unwrap(), graph);
            }
        }
    }

    #[test]
    fn gossip_matrices_are_symmetric_and_keep_constants() {
        let graph = Graph::erdos_renyi(25, 0.2, &randomness(9)).unwrap();
        let n = graph.machines();
        for (matrix, row_sum) in [(graph.laplacian(), 0.0), (graph.metropolis(), 1.0)] {
            for i in 0..n {
                // Twenty-five numbers of at most 25: exact for the Laplacian, rounding for the weights.
                assert!((matrix[i * n..(i + 1) * n].iter().sum::<f64>() - row_sum).abs() < 1e-14);
                assert!((0..n).all(|j| matrix[i * n + j] == matrix[j * n + i]));
            }
        }
        assert!(graph.metropolis().iter().all(|&weight| weight >= 0.0));
        assert_eq!(graph.edges().count() * 2 + n, graph.laplacian().iter().filter(|&&v| v != 0.0).count());
    }

    #[test]
    fn a_spanning_tree_covers_all_machines_with_edges_of_the_graph_in_a_possible_order() {
        let graphs = [Graph::ring(9), Graph::grid(4, 5), Graph::star(8), Graph::hypercube(4), Graph::path(6)];
        for graph in graphs.into_iter().flatten().chain([Graph::random_regular(30, 3, &randomness(2)).unwrap()]) {
            for root in [0, graph.machines() - 1] {
                let tree = graph.spanning_tree(root);
                assert_eq!((tree.root(), tree.messages()), (root, 2 * (graph.machines() - 1)));
                let mut informed = vec![false; graph.machines()];
                informed[root] = true;
                for (from, to) in tree.down_sweep() {
                    assert!(informed[from] && !informed[to] && graph.neighbours(from).contains(&to));
                    assert_eq!((tree.parent(to), tree.depth(to)), (Some(from), tree.depth(from) + 1));
                    assert!(tree.children(from).contains(&to));
                    informed[to] = true;
                }
                assert!(informed.iter().all(|&informed| informed));
                let mut sent = vec![false; graph.machines()];
                for (from, to) in tree.up_sweep() {
                    assert!(!sent[from] && !sent[to] && tree.children(from).iter().all(|&child| sent[child]));
                    sent[from] = true;
                }
                assert!((0..graph.machines()).all(|machine| sent[machine] == (machine != root)));
                // Breadth first: nobody is farther from the root than in the graph.
                assert_eq!(tree.height(), graph.distances(root).into_iter().flatten().max().unwrap());
            }
        }
        assert_eq!(Graph::path(9).unwrap().central_tree().root(), 4);
        assert_eq!(Graph::path(9).unwrap().central_tree().height(), 4);
    }

    #[test]
    fn a_picture_shows_every_machine_and_every_edge() {
        let graphs = [Graph::ring(12), Graph::grid(3, 4), Graph::torus(4, 4), Graph::star(9), Graph::complete(70)];
        for graph in graphs.into_iter().flatten() {
            let svg = graph.to_svg();
            assert_eq!(svg.matches("<circle").count(), graph.machines());
            assert_eq!(svg.matches("<path").count(), graph.edge_count());
            assert_eq!(svg.matches("<text").count(), if graph.machines() <= 64 { graph.machines() } else { 0 });
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("prefers-color-scheme:dark"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }
}
