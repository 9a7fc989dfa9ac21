//! Many short lists in two vectors: what a workload has of each request, or a file of each record.

/// The lists, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists<T> {
    items: Vec<T>,
    /// `starts[i]..starts[i + 1]` are list i's.
    starts: Vec<usize>,
}

impl<T> Default for Lists<T> {
    /// No list.
    fn default() -> Self {
        Self { items: Vec::new(), starts: vec![0] }
    }
}

impl<T> Lists<T> {
    /// Appends an item to the list that is being read.
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// Items since the last `end`.
    pub(crate) fn pending(&self) -> usize {
        self.items.len() - self.starts.last().copied().unwrap_or(0)
    }

    /// Ends the list that is being read.
    pub(crate) fn end(&mut self) {
        self.starts.push(self.items.len());
    }

    /// Appends a whole list.
    pub fn push_list(&mut self, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
        self.end();
    }

    /// A list. Panics beyond the last.
    #[inline]
    pub fn of(&self, index: usize) -> &[T] {
        &self.items[self.starts[index]..self.starts[index + 1]]
    }

    /// All lists, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[T]> {
        self.starts.windows(2).map(|bounds| &self.items[bounds[0]..bounds[1]])
    }

    /// The items of all lists.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

impl<T: Copy> Lists<T> {
    /// Some of the lists, in this order.
    pub(crate) fn in_order(&self, indices: &[usize]) -> Self {
        let mut ordered = Self::default();
        indices.iter().for_each(|&index| ordered.push_list(self.of(index).iter().copied()));
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_back_one_by_one_or_whole() {
        let mut lists = Lists::default();
        lists.push(1);
        lists.push(2);
        assert_eq!(lists.pending(), 2);
        lists.end();
        lists.push_list([]);
        lists.push_list([3]);
        assert_eq!(lists.iter().collect::<Vec<_>>(), [&[1, 2][..], &[], &[3]]);
        assert_eq!((lists.of(0), lists.of(1), lists.items()), (&[1, 2][..], &[][..], &[1, 2, 3][..]));
        assert_eq!(lists.in_order(&[2, 0]).iter().collect::<Vec<_>>(), [&[3][..], &[1, 2]]);
    }
}
