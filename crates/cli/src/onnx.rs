//! ONNX, as far as a linear model needs it: a graph of nodes, written as the protocol buffers that `onnx.proto` defines.

/// What a tensor holds, by the number that ONNX has for it.
#[derive(Clone, Copy)]
pub enum Kind {
    /// 32-bit floats.
    Float = 1,
    /// Texts.
    Text = 8,
    /// 64-bit floats.
    Double = 11,
}

/// An attribute of a node.
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
    /// Floats.
    Floats(Vec<f32>),
    /// Texts.
    Texts(Vec<String>),
}

/// A graph that is being made.
#[derive(Default)]
pub struct Graph {
    /// Nodes, constants, inputs and outputs as fields of a GraphProto.
    nodes: Vec<u8>,
    constants: Vec<u8>,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    count: usize,
}

impl Graph {
    /// Adds an input of `columns` columns and any number of rows, and returns its name.
    pub fn input(&mut self, name: &str, kind: Kind, columns: usize) -> String {
        bytes(11, &value_info(name, kind, columns), &mut self.inputs);
        name.to_owned()
    }

    /// Adds a constant row of doubles, and returns its name.
    pub fn constant(&mut self, name: &str, values: &[f64]) -> String {
        let mut tensor = Vec::new();
        number(1, values.len() as u64, &mut tensor);
        number(2, Kind::Double as u64, &mut tensor);
        bytes(8, name.as_bytes(), &mut tensor);
        bytes(9, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(), &mut tensor);
        bytes(5, &tensor, &mut self.constants);
        name.to_owned()
    }

    /// Says that a value is an output; one of no columns has rows alone.
    pub fn output(&mut self, name: &str, kind: Kind, columns: usize) {
        bytes(12, &value_info(name, kind, columns), &mut self.outputs);
    }

    /// Adds a node with one output, and returns the output's name.
    pub fn node(
        &mut self,
        operator: &str,
        domain: &str,
        inputs: &[String],
        output: &str,
        attributes: Vec<(&str, Attribute)>,
    ) -> String {
        self.node_with_outputs(operator, domain, inputs, &[output], attributes);
        output.to_owned()
    }

    /// Adds a node.
    pub fn node_with_outputs(
        &mut self,
        operator: &str,
        domain: &str,
        inputs: &[String],
        outputs: &[&str],
        attributes: Vec<(&str, Attribute)>,
    ) {
        let mut node = Vec::new();
        inputs.iter().for_each(|input| bytes(1, input.as_bytes(), &mut node));
        outputs.iter().for_each(|output| bytes(2, output.as_bytes(), &mut node));
        self.count += 1;
        bytes(3, format!("{operator} {}", self.count).as_bytes(), &mut node);
        bytes(4, operator.as_bytes(), &mut node);
        attributes.into_iter().for_each(|(name, attribute)| bytes(5, &encode(name, attribute), &mut node));
        bytes(7, domain.as_bytes(), &mut node);
        bytes(1, &node, &mut self.nodes);
    }

    /// The whole model.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut graph = self.nodes.clone();
        bytes(2, b"corewire", &mut graph);
        graph.extend_from_slice(&self.constants);
        graph.extend_from_slice(&self.inputs);
        graph.extend_from_slice(&self.outputs);
        let mut model = Vec::new();
        // Version 8 of the format came with opset 15, and runtimes since 2022 read it.
        number(1, 8, &mut model);
        bytes(2, b"corewire", &mut model);
        bytes(7, &graph, &mut model);
        for (domain, version) in [("", 15), ("ai.onnx.ml", 3)] {
            let mut opset = Vec::new();
            bytes(1, domain.as_bytes(), &mut opset);
            number(2, version, &mut opset);
            bytes(8, &opset, &mut model);
        }
        model
    }
}

fn value_info(name: &str, kind: Kind, columns: usize) -> Vec<u8> {
    let (mut shape, mut rows) = (Vec::new(), Vec::new());
    bytes(2, b"rows", &mut rows);
    bytes(1, &rows, &mut shape);
    if columns > 0 {
        let mut dimension = Vec::new();
        number(1, columns as u64, &mut dimension);
        bytes(1, &dimension, &mut shape);
    }
    let (mut tensor, mut of, mut info) = (Vec::new(), Vec::new(), Vec::new());
    number(1, kind as u64, &mut tensor);
    bytes(2, &shape, &mut tensor);
    bytes(1, &tensor, &mut of);
    bytes(1, name.as_bytes(), &mut info);
    bytes(2, &of, &mut info);
    info
}

fn encode(name: &str, attribute: Attribute) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(1, name.as_bytes(), &mut out);
    let kind = match attribute {
        Attribute::Int(value) => {
            number(3, value as u64, &mut out);
            2
        }
        Attribute::Text(text) => {
            bytes(4, text.as_bytes(), &mut out);
            3
        }
        Attribute::Floats(values) => {
            bytes(7, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(), &mut out);
            6
        }
        Attribute::Texts(texts) => {
            texts.iter().for_each(|text| bytes(9, text.as_bytes(), &mut out));
            8
        }
    };
    number(20, kind, &mut out);
    out
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(field: u64, wire: u64, out: &mut Vec<u8>) {
    varint(field << 3 | wire, out);
}

fn number(field: u64, value: u64, out: &mut Vec<u8>) {
    tag(field, 0, out);
    varint(value, out);
}

fn bytes(field: u64, content: &[u8], out: &mut Vec<u8>) {
    tag(field, 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_coded_as_protocol_buffers_are() {
        let mut out = Vec::new();
        number(1, 150, &mut out);
        bytes(2, b"testing", &mut out);
        // The examples of the encoding's own documentation.
        assert_eq!(out, [0x08, 0x96, 0x01, 0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g']);
    }
}
