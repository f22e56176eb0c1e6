from deferkit.learn.embed.training_set import Floats, Ints, Singles

def hidden_rows(x: Floats, weights: Floats, biases: Floats, skip: bool, out: Floats) -> None: ...
def gradient_rows(
    x: Floats,
    weights: Floats,
    biases: Floats,
    heads: Floats,
    offsets: Floats,
    squashed: Ints,
    first_curvature: Floats,
    bias_curvature: Floats,
    head_curvature: Floats,
    offset_curvature: Floats,
    hidden: Floats,
    out: Floats,
) -> None: ...
def tree_rows(
    x: Floats,
    feature: Ints,
    threshold: Floats,
    left: Ints,
    right: Ints,
    value: Floats,
    root: Ints,
    column: Ints,
    out: Floats,
) -> None: ...
def hat_rows(
    x: Floats, knots: Floats, n_knots: Ints, heights: Floats, levels: Floats, out: Floats, first: int
) -> None: ...
def stack_rows(
    out: Floats,
    columns: Ints,
    has_trees: Ints,
    features: int,
    targets: int,
    probabilities: int,
    log_odds_unit: float,
    unit: float,
) -> None: ...
def log_odds_rows(out: Floats, columns: Ints, unit: float) -> None: ...
def bias_and_relu(units: Singles, bias: Singles) -> None: ...
def relu_and_concat(product: Floats, bias: Floats, x: Floats, out: Floats) -> None: ...
def relu_gradient(gradient: Singles, units: Singles, bias_gradient: Singles) -> None: ...
def adam(weights: Singles, gradient: Singles, mean: Singles, square: Singles, rate: float, step: int) -> None: ...
