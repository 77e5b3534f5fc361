"""Decision trees and their ensembles.

All thresholds on a feature that one table needs are one digit: the number of them that the feature is beyond. Digits of
several features stand side by side in one sample (mixed radix), which costs nothing but additions, since the tables that
make the digits of a feature share one extraction. One table of that sample gives the sum of the leaves of all trees that fit
in it. A tree that does not fit is cut into regions, and the table of a region also says which of the regions below is active.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._errors import ModelError
from ._graph import GraphText
from ._model import Finish, Model
from ._quantise import Ranks, Uniform


@dataclass
class Tree:
    """Nodes in arrays; `left[n] < 0` marks a leaf, whose `value[n]` has a number for each output.

    A row goes left where its feature is at most the threshold, or below it, as the ensemble says.
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray


@dataclass
class Ensemble:
    """Trees whose leaves add up, and how they compare."""

    kind: str
    trees: list[Tree]
    finish: Finish
    features: list[str]
    strict: bool
    dtype: type


@dataclass
class Region:
    """A connected part of a tree, from `root` down, that one table evaluates."""

    tree: int
    root: int
    parent: Region | None
    level: int
    nodes: set[int] = field(default_factory=set)
    below: list[Region] = field(default_factory=list)


@dataclass
class Group:
    """Regions that share a table: the thresholds of each feature, by index, and the places of the digits."""

    regions: list[Region] = field(default_factory=list)
    thresholds: dict[int, set[int]] = field(default_factory=dict)

    def size(self, thresholds: dict[int, set[int]], entered: int) -> int:
        """Values of the sample if these thresholds and so many bits of activity are added."""
        size = 1 << entered + sum(region.parent is not None for region in self.regions)
        for feature in self.thresholds.keys() | thresholds.keys():
            size *= 1 + len(self.thresholds.get(feature, set()) | thresholds.get(feature, set()))
        return size

    def add(self, region: Region, thresholds: dict[int, set[int]]) -> None:
        self.regions.append(region)
        for feature, indices in thresholds.items():
            self.thresholds.setdefault(feature, set()).update(indices)


class Trees(Model):
    """An ensemble of trees with integer leaves."""

    def __init__(
        self, ensemble: Ensemble, steps: Mapping[int, Uniform] | None, is_coded: bool, bits: int, score_bits: int, table_bits: int
    ) -> None:
        """The model of an ensemble.

        `steps` says how features become integers; None leaves that to the thresholds. `is_coded` says that the ensemble compares these integers with its
        thresholds, and not the features. `bits` limits the integers that thresholds make.
        """
        kind, trees = ensemble.kind, ensemble.trees
        found: dict[int, set[float]] = {}
        for tree in trees:
            for node in np.flatnonzero(tree.left >= 0):
                found.setdefault(int(tree.feature[node]), set()).add(float(tree.threshold[node]))
        ranks = {
            j: Ranks(np.array(sorted(found[j])), ensemble.strict, ensemble.dtype) for j in sorted(found)
        }
        quantisers: dict[int, Any] = {j: rank if steps is None else steps[j] for j, rank in ranks.items()}
        for j, rank in ranks.items():
            if steps is None and rank.levels >= 1 << bits:
                raise ModelError(
                    f"{kind} compares feature {ensemble.features[j]} with {rank.levels} thresholds, which take "
                    f"{rank.levels.bit_length()} bits, and bits={bits}; allow more, or take quantise='uniform'"
                )
        self._rank = {}
        for j, quantiser in quantisers.items():
            codes = np.arange(quantiser.levels + 1)
            self._rank[j] = codes if steps is None else ranks[j].encode(codes if is_coded else quantiser.decode(codes))
        self._table_bits = table_bits
        self._trees = trees
        self._index = []
        for tree in trees:
            index = np.full(len(tree.left), -1)
            for node in np.flatnonzero(tree.left >= 0):
                index[node] = np.searchsorted(ranks[int(tree.feature[node])].thresholds, tree.threshold[node])
            self._index.append(index)

        leaves = [tree.value[tree.left < 0] for tree in trees]
        lows = [leaf.min(axis=0) for leaf in leaves]
        span = sum(leaf.max(axis=0) - low for leaf, low in zip(leaves, lows))
        room = (1 << score_bits) - 1 - len(trees)
        if room <= 0:
            raise ModelError(f"{kind}: {len(trees)} trees do not fit a score of {score_bits} bits; raise score_bits")
        factor = room / float(np.max(span)) if np.max(span) > 0 else 1.0
        self._leaves = [np.rint((tree.value - low) * factor).astype(np.int64) for tree, low in zip(trees, lows)]
        finish = ensemble.finish
        offset = finish.offset + np.sum(lows, axis=0)
        finish = Finish(np.full(len(offset), 1 / factor), offset, finish.link, finish.classes, finish.tie)
        super().__init__(kind, ensemble.features, quantisers, finish)

    def _scores(self, codes: dict[int, np.ndarray]) -> np.ndarray:
        ranks = {j: self._rank[j][code] for j, code in codes.items()}
        rows = len(next(iter(ranks.values())))
        scores = np.zeros((rows, len(self.outputs)), np.int64)
        for tree, index, leaves in zip(self._trees, self._index, self._leaves):
            node = np.zeros(rows, np.int64)
            while (inner := np.flatnonzero(tree.left[node] >= 0)).size:
                at = node[inner]
                beyond = np.array([ranks[j][row] for j, row in zip(tree.feature[at].tolist(), inner)]) > index[at]
                node[inner] = np.where(beyond, tree.right[at], tree.left[at])
            scores += leaves[node]
        return scores

    def _thresholds(self, region: Region) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for node in region.nodes:
            found.setdefault(int(self._trees[region.tree].feature[node]), set()).add(int(self._index[region.tree][node]))
        return found

    def _regions(self) -> list[Region]:
        """The trees, cut where a table would have more than `table_bits`."""
        limit, regions = 1 << self._table_bits, []
        pending = [Region(t, 0, None, 0) for t, tree in enumerate(self._trees) if tree.left[0] >= 0]
        while pending:
            region = pending.pop()
            tree, queue = self._trees[region.tree], [region.root]
            while queue:
                node = queue.pop(0)
                region.nodes.add(node)
                if Group().size(self._thresholds(region), region.parent is not None) > limit:
                    region.nodes.remove(node)
                    region.below.append(Region(region.tree, node, region, region.level + 1))
                    continue
                queue += [int(child) for child in (tree.left[node], tree.right[node]) if tree.left[child] >= 0]
            regions.append(region)
            pending += region.below
        return regions

    def _groups(self) -> list[Group]:
        """Regions side by side while they fit; those of one level alone, so that no group waits for itself."""
        groups: list[tuple[int, Group]] = []
        for region in sorted(self._regions(), key=lambda r: (r.level, r.tree, r.root)):
            thresholds = self._thresholds(region)
            for level, group in groups:
                if level == region.level and group.size(thresholds, region.parent is not None) <= 1 << self._table_bits:
                    group.add(region, thresholds)
                    break
            else:
                group = Group()
                group.add(region, thresholds)
                groups.append((region.level, group))
        return [group for _, group in groups]

    def _build(self) -> str:
        graph = GraphText()
        inputs = {j: graph.input(self.features[j], 0, q.levels) for j, q in self.quantisers.items()}
        sums: list[list[str]] = [[] for _ in self.outputs]
        active: dict[tuple[int, int], str] = {}
        constant = [0] * len(self.outputs)
        for tree, leaves in zip(self._trees, self._leaves):
            if tree.left[0] < 0:
                constant = [c + int(v) for c, v in zip(constant, leaves[0])]
        for group in self._groups():
            size, terms, digits, entered = 1, [], {}, {}
            for j in sorted(group.thresholds):
                cuts = np.array(sorted(group.thresholds[j]))
                digit = np.searchsorted(cuts, self._rank[j], side="left")
                terms.append((1, graph.table(inputs[j], (size * digit).tolist())))
                digits[j] = (cuts, size)
                size *= len(cuts) + 1
            for region in group.regions:
                if region.parent is not None:
                    terms.append((size, active[region.tree, region.root]))
                    entered[region.tree, region.root] = size
                    size *= 2
            sample = graph.linear(terms)
            values = np.arange(size)
            beyond = {
                (j, int(cut)): values // weight % (len(cuts) + 1) > i
                for j, (cuts, weight) in digits.items()
                for i, cut in enumerate(cuts)
            }
            total = np.zeros((size, len(self.outputs)), np.int64)
            for region in group.regions:
                here = np.ones(size, bool)
                if region.parent is not None:
                    here = values // entered[region.tree, region.root] % 2 == 1
                self._walk(region, region.root, here, beyond, total, graph, sample, active)
            for k, name in enumerate(sums):
                if total[:, k].any():
                    name.append(graph.table(sample, total[:, k].tolist()))
        for output, names, fixed in zip(self.outputs, sums, constant):
            graph.output(output, graph.linear([(1, name) for name in names], fixed))
        return graph.text()

    def _walk(
        self,
        region: Region,
        node: int,
        here: np.ndarray,
        beyond: dict[tuple[int, int], np.ndarray],
        total: np.ndarray,
        graph: GraphText,
        sample: str,
        active: dict[tuple[int, int], str],
    ) -> None:
        """Adds the leaves that the values `here` reach below `node`, and makes the bits of the regions below."""
        tree = self._trees[region.tree]
        if tree.left[node] < 0:
            total[here] += self._leaves[region.tree][node]
        elif node not in region.nodes:
            active[region.tree, node] = graph.table(sample, here.astype(int).tolist())
        else:
            right = beyond[int(tree.feature[node]), int(self._index[region.tree][node])]
            self._walk(region, int(tree.left[node]), here & ~right, beyond, total, graph, sample, active)
            self._walk(region, int(tree.right[node]), here & right, beyond, total, graph, sample, active)
