//! Which networks there are. Tensors have the names and the order that PyTorch gives to the parameters of the same network.

use std::fmt;

use crate::Network;
use crate::convolution::Convolution;
use crate::layer::{Layer, Place};
use crate::norm::{Norm, Together};

/// A network by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// One hidden layer of rectified units.
    Mlp {
        /// How many.
        hidden: usize,
    },
    /// Two convolutions of five by five, two pools, two linear layers.
    LeNet,
    /// Three residual blocks of 24, 48 and 96 channels with group norm.
    SmallResNet,
    /// ResNet-18 for small pictures: a first convolution of three by three and no first pool; batch norm.
    ResNet18,
}

/// Those without a size of their own, by the name that people choose them by.
const NAMES: [(&str, Architecture); 3] =
    [("lenet", Architecture::LeNet), ("resnet-small", Architecture::SmallResNet), ("resnet18", Architecture::ResNet18)];

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, architecture)| architecture == self);
        f.write_str(named.map_or("mlp", |(name, _)| name))
    }
}

/// The extents of a picture, or of what a layer makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Colours.
    pub channels: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
}

impl Shape {
    /// Of a row of so many columns: a square of one channel or of three, one channel after the other.
    pub fn of_columns(columns: usize) -> Option<Self> {
        [1, 3].into_iter().find_map(|channels| {
            let side = (columns / channels).isqrt();
            (side > 1 && channels * side * side == columns).then_some(Self { channels, height: side, width: side })
        })
    }

    /// Pixels of a channel.
    pub fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// Numbers in all.
    pub fn len(&self) -> usize {
        self.channels * self.pixels()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One tensor of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// PyTorch's name for it.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// What it begins with.
    pub(crate) start: Start,
}

impl Tensor {
    /// How many numbers it has.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a tensor begins with: evenly spread around a centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Start {
    centre: f64,
    most: f64,
}

impl Start {
    const fn all(centre: f64) -> Self {
        Self { centre, most: 0.0 }
    }

    /// PyTorch's default: evenly within one over the root of the inputs.
    fn within(inputs: usize) -> Self {
        Self { centre: 0.0, most: 1.0 / (inputs as f64).sqrt() }
    }

    /// Of this variance.
    fn of_variance(variance: f64) -> Self {
        Self { centre: 0.0, most: (3.0 * variance).sqrt() }
    }

    pub(crate) fn value(self, draw: &mut impl FnMut() -> f64) -> f32 {
        let around = if self.most == 0.0 { 0.0 } else { self.most * (2.0 * draw() - 1.0) };
        (self.centre + around) as f32
    }
}

impl Architecture {
    /// The name's network; `hidden` is for those with a size.
    pub fn named(name: &str, hidden: usize) -> Option<Self> {
        let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, architecture)| *architecture);
        named.or((name == "mlp").then_some(Self::Mlp { hidden }))
    }

    pub(crate) fn build(self, columns: usize, classes: usize) -> Result<Network, String> {
        let flat = Shape { channels: columns, height: 1, width: 1 };
        let picture = Shape::of_columns(columns);
        let least = match self {
            Self::Mlp { .. } => 1,
            Self::LeNet => 12,
            Self::SmallResNet | Self::ResNet18 => 8,
        };
        let input = match (self, picture) {
            (Self::Mlp { .. }, _) => flat,
            (_, Some(shape)) if shape.height >= least => shape,
            (_, Some(shape)) => {
                let Shape { height, width, .. } = shape;
                return Err(format!(
                    "`{self}` needs pictures of at least {least} by {least} pixels, not {height} by {width}"
                ));
            }
            (_, None) => {
                return Err(format!(
                    "`{self}` needs square pictures of one or three channels, and rows of {columns} columns are none; take `mlp`"
                ));
            }
        };
        let mut plan = Plan { shape: input, tensors: Vec::new(), kept: Vec::new(), at: 0, kept_at: 0 };
        let layers = match self {
            Self::Mlp { hidden } => plan.mlp(hidden, classes),
            Self::LeNet => plan.lenet(classes),
            Self::SmallResNet => plan.small_resnet(classes),
            Self::ResNet18 => plan.resnet18(classes),
        };
        let Plan { tensors, kept, at, .. } = plan;
        Ok(Network { input, classes, layers, tensors, dim: at, kept })
    }
}

/// A network in the making.
struct Plan {
    /// What the next layer sees.
    shape: Shape,
    tensors: Vec<Tensor>,
    kept: Vec<Tensor>,
    at: usize,
    kept_at: usize,
}

impl Plan {
    fn tensor(&mut self, name: String, shape: Vec<usize>, start: Start) -> Place {
        let tensor = Tensor { name, shape, start };
        let first = self.at;
        self.at += tensor.len();
        self.tensors.push(tensor);
        first..self.at
    }

    fn convolution(
        &mut self,
        name: &str,
        channels: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
        bias: bool,
    ) -> Layer {
        let inputs = self.shape.channels * kernel * kernel;
        self.convolution_from(name, channels, kernel, stride, padding, bias, Start::within(inputs))
    }

    fn convolution_from(
        &mut self,
        name: &str,
        channels: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
        bias: bool,
        start: Start,
    ) -> Layer {
        let form = Convolution::new(self.shape, channels, kernel, stride, padding);
        let inputs = self.shape.channels * kernel * kernel;
        let weight = self.tensor(format!("{name}.weight"), vec![channels, self.shape.channels, kernel, kernel], start);
        let bias = bias.then(|| self.tensor(format!("{name}.bias"), vec![channels], Start::within(inputs)));
        self.shape = form.output;
        Layer::Convolution { weight, bias, form }
    }

    fn linear(&mut self, name: &str, outputs: usize) -> Layer {
        let inputs = self.shape.len();
        let weight = self.tensor(format!("{name}.weight"), vec![outputs, inputs], Start::within(inputs));
        let bias = self.tensor(format!("{name}.bias"), vec![outputs], Start::within(inputs));
        self.shape = Shape { channels: outputs, height: 1, width: 1 };
        Layer::Linear { weight, bias, inputs, outputs }
    }

    fn norm(&mut self, name: &str, together: Together) -> Layer {
        let channels = self.shape.channels;
        let scale = self.tensor(format!("{name}.weight"), vec![channels], Start::all(1.0));
        let shift = self.tensor(format!("{name}.bias"), vec![channels], Start::all(0.0));
        Layer::Norm { scale, shift, form: Norm { channels, pixels: self.shape.pixels(), together } }
    }

    /// By eight groups, or fewer where there are fewer channels.
    fn group_norm(&mut self, name: &str) -> Layer {
        let groups = self.shape.channels.min(8);
        self.norm(name, Together::Groups(groups))
    }

    fn batch_norm(&mut self, name: &str) -> Layer {
        let (channels, kept) = (self.shape.channels, self.kept_at);
        for (what, start) in [("running_mean", 0.0), ("running_var", 1.0)] {
            let name = format!("{name}.{what}");
            self.kept.push(Tensor { name, shape: vec![channels], start: Start::all(start) });
        }
        self.kept_at += 2 * channels;
        self.norm(name, Together::Batch { kept })
    }

    fn largest(&mut self) -> Layer {
        let input = self.shape;
        self.shape = Shape { height: input.height / 2, width: input.width / 2, ..input };
        Layer::Largest { input }
    }

    fn mean(&mut self) -> Layer {
        let pixels = self.shape.pixels();
        self.shape = Shape { height: 1, width: 1, ..self.shape };
        Layer::Mean { pixels }
    }

    fn mlp(&mut self, hidden: usize, classes: usize) -> Vec<Layer> {
        vec![self.linear("0", hidden), Layer::Rectify, self.linear("2", classes)]
    }

    fn lenet(&mut self, classes: usize) -> Vec<Layer> {
        vec![
            self.convolution("0", 16, 5, 1, 2, true),
            Layer::Rectify,
            self.largest(),
            self.convolution("3", 32, 5, 1, 0, true),
            Layer::Rectify,
            self.largest(),
            self.linear("7", 120),
            Layer::Rectify,
            self.linear("9", classes),
        ]
    }

    fn small_resnet(&mut self, classes: usize) -> Vec<Layer> {
        let mut layers = vec![self.convolution("0", 24, 3, 1, 1, false), self.group_norm("1"), Layer::Rectify];
        for (place, (channels, stride)) in [(24, 1), (48, 2), (96, 2)].into_iter().enumerate() {
            let (name, input) = (place + 3, self.shape);
            let main = vec![
                self.convolution(&format!("{name}.first.0"), channels, 3, stride, 1, false),
                self.group_norm(&format!("{name}.first.1")),
                Layer::Rectify,
                self.convolution(&format!("{name}.second.0"), channels, 3, 1, 1, false),
                self.group_norm(&format!("{name}.second.1")),
            ];
            let output = std::mem::replace(&mut self.shape, input);
            let short = match stride > 1 || input.channels != channels {
                true => vec![self.convolution(&format!("{name}.short"), channels, 1, stride, 0, false)],
                false => Vec::new(),
            };
            self.shape = output;
            layers.push(Layer::Residual { main, short });
        }
        layers.extend([self.mean(), self.linear("8", classes)]);
        layers
    }

    /// A convolution without bias whose weights have torchvision's variance, 2 over what an input reaches.
    fn resnet_convolution(&mut self, name: &str, channels: usize, kernel: usize, stride: usize) -> Layer {
        let start = Start::of_variance(2.0 / (channels * kernel * kernel) as f64);
        self.convolution_from(name, channels, kernel, stride, kernel / 2, false, start)
    }

    fn resnet18(&mut self, classes: usize) -> Vec<Layer> {
        let mut layers = vec![self.resnet_convolution("conv1", 64, 3, 1), self.batch_norm("bn1"), Layer::Rectify];
        for (stage, channels) in [64, 128, 256, 512].into_iter().enumerate() {
            for block in 0..2 {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let (name, input) = (format!("layer{}.{block}", stage + 1), self.shape);
                let main = vec![
                    self.resnet_convolution(&format!("{name}.conv1"), channels, 3, stride),
                    self.batch_norm(&format!("{name}.bn1")),
                    Layer::Rectify,
                    self.resnet_convolution(&format!("{name}.conv2"), channels, 3, 1),
                    self.batch_norm(&format!("{name}.bn2")),
                ];
                let output = std::mem::replace(&mut self.shape, input);
                let short = match stride > 1 {
                    true => vec![
                        self.resnet_convolution(&format!("{name}.downsample.0"), channels, 1, stride),
                        self.batch_norm(&format!("{name}.downsample.1")),
                    ],
                    false => Vec::new(),
                };
                self.shape = output;
                layers.push(Layer::Residual { main, short });
            }
        }
        layers.extend([self.mean(), self.linear("fc", classes)]);
        layers
    }
}
