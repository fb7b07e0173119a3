"""From a Stencil to C: one function per stage with the signature of core/outcrop/kernel/kernel.h.

Rows are updated as whole aligned vectors (vectors.py). One row of one plane per inner loop, planes inside rows: the
rows that neighbouring planes share are then still in the first-level cache. Blocking several rows or planes in
registers was measured and is slower here: it opens more streams than the prefetchers follow.

What whole vectors get wrong at both ends of a row is put right after the row: cells of a fixed rim get their old values
back, those that need cells beyond the grid are computed one by one, and padding is zero. All this is taken before
the row is stored, because a field may be updated where it lies:

    | edge: computed or kept |        whole vectors, stored        | edge | padding: 0 |
      ──────────────────────── put in place afterwards ─────────────────────────────

Rows beyond the grid are redirected to those whose values they have (boundary.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from outcrop.language.boundary import FIXED, Boundary, Side
from outcrop.language.operands import operands_of, updates_in_place
from outcrop.language.stage import Stage
from outcrop.language.stencil import Stencil
from outcrop.language.vectors import Lanes

C_TYPES = {"float32": "float", "float64": "double"}
ITEM_BYTES = {"float32": 4, "float64": 8}

_HEAD = """\
#include <math.h>
struct outcrop_block {
  void *const *const *target;
  const void *const *const *source;
  long planes, y0, y1, x0, x1, nx, ny, pitch;
  const void *scalars;
};
/* Where the value beyond the grid is to be found. */
static inline long mirrored(long i, long n) {
  while (i < 0 || i >= n) i = i < 0 ? -1 - i : 2 * n - 1 - i;
  return i;
}
static inline long wrapped(long i, long n) {
  while (i < 0) i += n;
  while (i >= n) i -= n;
  return i;
}
/* Loops over a few cells: vectors would only add checks before and behind them. */
#define ONE_BY_ONE __asm__ volatile("")
static inline long within(long i, long low, long high) { return i < low ? low : i > high ? high : i; }
"""


def symbol(stage: int) -> str:
    """The name of the function of a stage."""
    return f"outcrop_update_{stage}"


def generate(stencil: Stencil, dtype: str, vector_bytes: int, boundary: Boundary = FIXED) -> str:
    """C source of the updates of `stencil` in `dtype` ("float32" or "float64") with vectors of `vector_bytes`
    (0: none).

    It is made of numbers and operators alone: no name or text of a stencil, which may be a stranger's, is in it.
    """
    lanes = max(1, vector_bytes // ITEM_BYTES[dtype])
    lines = [_HEAD]
    for number, stage in enumerate(stencil.stages):
        writer = _StageWriter(stencil, number, Lanes(stage.program, C_TYPES[dtype], ITEM_BYTES[dtype], lanes), boundary)
        lines += [] if number else writer.lanes.type_definitions()
        lines += writer.lines()
    return "\n".join(lines) + "\n"


class _StageWriter:
    """Writes the functions of one stage; every method yields lines."""

    def __init__(self, stencil: Stencil, number: int, lanes: Lanes, boundary: Boundary) -> None:
        self.number, self.lanes, self.boundary = number, lanes, boundary
        self.stage: Stage = stencil.stages[number]
        self.operands = operands_of(stencil, number)
        self.in_place = [updates_in_place(stencil, number, target) for target in self.stage.targets]
        reads_older = any((target, 1) in self.stage.reaches for target in self.stage.targets)
        self.reads_target = reads_older or any(self.in_place)
        self.radius_x = stencil.radii[2]
        self.type = lanes.c_type

    def lines(self) -> Iterator[str]:
        """Both functions, and one for single cells where the boundary needs it."""
        if self._computes_edges():
            yield from self._cell_function()
        yield from self._row_function()
        yield from self._block_function()

    def _computes_edges(self) -> bool:
        return self.radius_x > 0 and any(side != "fixed" for side in self.boundary.x)

    def _row_arguments(self) -> str:
        """Targets q, the rows whose rim they take over p, and the rows r that are read."""
        alone = "" if self.reads_target else "restrict "
        targets = "".join(
            f", {self.type} *{alone}q{j}, const {self.type} *{alone}p{j}" for j in range(len(self.in_place))
        )
        rows = "".join(f", const {self.type} *{alone}r{i}" for i in range(len(self.lanes.rows)))
        return f"const struct outcrop_block *b{targets}{rows}"

    def _cell_function(self) -> Iterator[str]:
        low, high = self.boundary.x
        rows = "".join(f", const {self.type} *r{i}" for i in range(len(self.lanes.rows)))
        outputs = "".join(f", {self.type} *e{j}" for j in range(len(self.in_place)))
        yield f"static void cell_{self.number}(const struct outcrop_block *b, long x{outputs}{rows}) {{"
        yield f"  const {self.type} *s = b->scalars;"
        yield "  (void)s;"
        yield from self.lanes.uniforms()
        mapping = "wrapped" if "periodic" in (low, high) else "mirrored"
        yield from self.lanes.cell_operations(lambda dx: f"{mapping}(x + {dx}, b->nx)" if dx else "x")
        uniform = self.stage.program.uniform
        for j, place in enumerate(self.stage.program.results):
            yield f"  *e{j} = {'u' if uniform[place] else 'c'}{place};"
        yield "}"

    def _row_function(self) -> Iterator[str]:
        yield f"static inline void row_{self.number}({self._row_arguments()}) {{"
        yield f"  const {self.type} *s = b->scalars;"
        yield "  (void)s;"
        yield from self.lanes.uniforms()
        yield from self._take_edges()
        yield from self.lanes.first_vectors()
        yield f"  for (long x = b->x0; x < b->x1; x += {self.lanes.lanes}) {{"
        yield from self.lanes.next_vectors()
        yield from self.lanes.operations()
        for j, place in enumerate(self.stage.program.results):
            yield f"    *(v *)(q{j} + x) = t{place};"
        yield from self.lanes.move_along()
        yield "  }"
        yield from self._put_edges()
        yield "}"
        yield ""

    def _edges(self) -> list[tuple[Side, str, str, str]]:
        """Kind, name, first cell and end of both edges; cells outside x0 .. x1 are somebody else's."""
        radius = self.radius_x
        if not radius:
            return []
        low_side, high_side = self.boundary.x
        if high_side == "fixed" and low_side != "fixed":  # where a short row is both, it is rim
            high_first = f"within(b->nx - {radius}, 0, b->nx)"
            low_end = f"within({radius}, 0, {high_first})"
        else:
            low_end = f"within({radius}, 0, b->nx)"
            high_first = f"within(b->nx - {radius}, {low_end}, b->nx)"
        clip = "within({}, b->x0, b->x1)"
        return [
            (low_side, "l", clip.format(0), clip.format(low_end)),
            (high_side, "h", clip.format(high_first), clip.format("b->nx")),
        ]

    def _take_edges(self) -> Iterator[str]:
        """What the cells at both ends of the row are to be, unless the rim can be copied afterwards."""
        for side, name, first, end in self._edges():
            yield f"  const long {name}0 = {first}, {name}1 = {end};"
            if side == "fixed" and not any(self.in_place):
                continue
            for j in range(len(self.in_place)):
                yield f"  {self.type} {name}v{j}[{self.radius_x}];"
            yield f"  for (long x = {name}0; x < {name}1; x++) {{"
            if side == "fixed":
                for j in range(len(self.in_place)):
                    yield f"    ONE_BY_ONE; {name}v{j}[x - {name}0] = p{j}[x];"
            else:
                outputs = "".join(f", &{name}v{j}[x - {name}0]" for j in range(len(self.in_place)))
                rows = "".join(f", r{i}" for i in range(len(self.lanes.rows)))
                yield f"    cell_{self.number}(b, x{outputs}{rows});"
            yield "  }"

    def _put_edges(self) -> Iterator[str]:
        for side, name, _, _ in self._edges():
            for j in range(len(self.in_place)):
                copied = side == "fixed" and not any(self.in_place)
                value = f"p{j}[x]" if copied else f"{name}v{j}[x - {name}0]"
                yield f"  for (long x = {name}0; x < {name}1; x++) {{ ONE_BY_ONE; q{j}[x] = {value}; }}"
        yield "  for (long x = b->nx > b->x0 ? b->nx : b->x0; x < b->x1; x++) {"
        for j in range(len(self.in_place)):
            yield f"    ONE_BY_ONE; q{j}[x] = 0;"
        yield "  }"

    def _block_function(self) -> Iterator[str]:
        yield f"void {symbol(self.number)}(const struct outcrop_block *b) {{"
        yield "  for (long y = b->y0; y < b->y1; y++)"
        yield "    for (long k = 0; k < b->planes; k++)"
        arguments = []
        for j, target in enumerate(self.stage.targets):
            arguments.append(f"({self.type} *)b->target[{j}][k] + y * b->pitch")
            arguments.append(self._row_pointer((target, 0), 0, 0))
        arguments += [self._row_pointer(*row) for row in self.lanes.rows]
        yield f"      row_{self.number}(b, " + ",\n          ".join(arguments) + ");"
        yield "}"

    def _row_pointer(self, operand: tuple[int, int], dz: int, dy: int) -> str:
        low, high = self.boundary.y
        row = f"(y + {dy})" if dy else "y"
        if dy and (low, high) != ("fixed", "fixed"):
            row = f"{'wrapped' if low == 'periodic' else 'mirrored'}(y + {dy}, b->ny)"
        return f"(const {self.type} *)b->source[{self.operands.index(operand)}][k + {dz}] + {row} * b->pitch"
