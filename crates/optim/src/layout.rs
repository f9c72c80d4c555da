//! How the coordinates of a model are divided into named blocks with shapes. Linear models have one block; networks have one a tensor.

/// One tensor of a model within the flat vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it is called, unique in its layout.
    pub name: String,
    /// Its extents; their product is its length.
    pub shape: Vec<usize>,
    /// Where it begins.
    pub offset: usize,
}

impl Block {
    /// How many coordinates it has.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its coordinates.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// The blocks of a vector, one after the other and without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    blocks: Vec<Block>,
}

impl Layout {
    /// From names and shapes, in their order.
    pub fn new(blocks: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let mut offset = 0;
        let place = |(name, shape): (String, Vec<usize>)| {
            let block = Block { name, shape, offset };
            offset += block.len();
            block
        };
        Self { blocks: blocks.into_iter().map(place).collect() }
    }

    /// One vector.
    pub fn vector(dim: usize) -> Self {
        Self::new([("x".to_owned(), vec![dim])])
    }

    /// In order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Coordinates in all.
    pub fn dim(&self) -> usize {
        self.blocks.last().map_or(0, |last| last.range().end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_without_gaps() {
        let layout =
            Layout::new([("w".to_owned(), vec![3, 4]), ("b".to_owned(), vec![3]), ("none".to_owned(), vec![0])]);
        let ranges: Vec<_> = layout.blocks().iter().map(Block::range).collect();
        assert_eq!((ranges, layout.dim()), (vec![0..12, 12..15, 15..15], 15));
        assert_eq!(Layout::vector(7).dim(), 7);
    }
}
