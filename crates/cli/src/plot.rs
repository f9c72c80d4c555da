//! Small drawings: the eigenvalues as a line of blocks for the terminal and as an SVG.

use corewire_optim::tuning::Spectrum;

/// Eigenvalues from the largest on, in logarithmic steps of the index, as blocks whose height is the logarithm of the value.
pub fn sparkline(spectrum: &Spectrum) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let total: f64 = spectrum.levels().iter().map(|level| level.1).sum();
    let width = 48;
    let value_at = |rank: f64| {
        let mut passed = 0.0;
        for &(value, count) in spectrum.levels() {
            passed += count;
            if passed >= rank {
                return value;
            }
        }
        spectrum.levels().last().map_or(0.0, |level| level.0)
    };
    let values: Vec<f64> = (0..width).map(|i| value_at(total.powf(f64::from(i) / f64::from(width - 1)))).collect();
    let (top, bottom) = (values[0].max(1e-300).ln(), values[values.len() - 1].max(1e-300).ln());
    let height = |value: f64| match top > bottom {
        true => ((value.max(1e-300).ln() - bottom) / (top - bottom) * 7.0).round() as usize,
        false => 7,
    };
    let line: String = values.iter().map(|&value| BLOCKS[height(value).min(7)]).collect();
    format!("eigenvalues, first to last (log): {:.1e} {line} {:.1e}", values[0], values[values.len() - 1])
}

/// Eigenvalues by rank, to be drawn under a name.
pub struct Curve {
    name: String,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// From all eigenvalues, largest first, where they are known, else from levels and counts.
    pub fn new(name: &str, spectrum: &Spectrum, all: Option<&[f64]>) -> Self {
        let mut points: Vec<(f64, f64)> = Vec::new();
        match all {
            Some(all) => points.extend(all.iter().enumerate().map(|(i, &value)| (i as f64 + 1.0, value))),
            None => {
                let mut rank = 0.5;
                for &(value, count) in spectrum.levels() {
                    points.push((rank + 0.5 * count.min(1.0), value));
                    rank += count;
                }
            }
        }
        points.retain(|&(index, value)| value > 0.0 && index > 0.0);
        Self { name: name.to_owned(), dashed: false, points }
    }

    /// Dashed, in the colour of the curve before it.
    pub fn dashed(self) -> Self {
        Self { dashed: true, ..self }
    }
}

/// The colours of curves, which are apart for all eyes and on both grounds.
const COLOURS: [&str; 3] = ["#2a78c8", "#c8642a", "#2a9d5f"];

/// The paper's Figure 4a: eigenvalue against index, both logarithmic. A line marks mu, where it is positive.
pub fn eigenvalues(curves: &[Curve], mu: f64) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let (width, height, left, bottom) = (640.0, 400.0, 70.0, 50.0);
    let most = points().map(|point| point.0).fold(10.0, f64::max).log10().ceil();
    let top = points().map(|point| point.1).fold(1e-12, f64::max).log10().ceil();
    // What lies ten decades below the largest is rounding.
    let low = points().map(|point| point.1).fold(1e12, f64::min).max(1e-16).log10().floor().max(top - 10.0);
    let x = |index: f64| left + index.max(1.0).log10() / most * (width - left - 20.0);
    let y = |value: f64| 20.0 + (top - value.log10()) / (top - low).max(1.0) * (height - bottom - 20.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <style>svg{{background:#fff;color:#223}} text{{fill:currentColor}} .grid{{stroke:currentColor;opacity:.15}} \
         @media (prefers-color-scheme: dark){{svg{{background:#14171c;color:#d5dae2}}}}</style>\n"
    );
    for decade in low as i32..=top as i32 {
        let at = y(10f64.powi(decade));
        svg += &format!(
            "<line class=\"grid\" x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{}\" \
             y=\"{:.1}\" text-anchor=\"end\">1e{decade}</text>\n",
            width - 20.0,
            left - 8.0,
            at + 4.0
        );
    }
    for decade in 0..=most as i32 {
        let at = x(10f64.powi(decade));
        svg += &format!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"20\" y2=\"{}\"/><text x=\"{at:.1}\" \
             y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            height - bottom,
            height - bottom + 20.0,
            if decade < 4 { 10i32.pow(decade as u32).to_string() } else { format!("1e{decade}") }
        );
    }
    let mut solid = 0;
    for (place, curve) in curves.iter().enumerate() {
        solid += usize::from(!curve.dashed);
        let colour = COLOURS[solid.saturating_sub(1) % COLOURS.len()];
        let dashes = if curve.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let point = |&(index, value): &(f64, f64)| format!("{:.1},{:.1}", x(index), y(value.max(10f64.powf(low))));
        let path: Vec<String> = curve.points.iter().map(point).collect();
        svg += &format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes} points=\"{}\"/>\n",
            path.join(" ")
        );
        if curves.len() > 1 {
            let at = 40.0 + 20.0 * place as f64;
            svg += &format!(
                "<line x1=\"{}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes}/>\
                 <text x=\"{}\" y=\"{}\">{}</text>\n",
                width - 190.0,
                width - 165.0,
                width - 158.0,
                at + 4.0,
                curve.name
            );
        }
    }
    if mu > 0.0 {
        svg += &format!(
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#c8642a\" stroke-dasharray=\"5 \
             4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">mu</text>\n",
            width - 20.0,
            width - 24.0,
            y(mu) - 6.0,
            at = y(mu)
        );
    }
    svg += &format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">index</text><text x=\"{left}\" y=\"14\">{}</text>\n</svg>\n",
        0.5 * (width + left),
        height - 10.0,
        if curves.iter().any(|curve| curve.dashed) { "magnitude of the eigenvalue" } else { "eigenvalue" }
    );
    svg
}
