"""Roles of operators (forward, backward, optimizer), by the scopes in their full names.

In graph mode `Default/network...` is the forward pass, `Gradients/...` the backward pass and `.../optimizer...` the
update of the weights. In PyNative mode a name has no scope, or nothing but `Default/`, and nothing says what it is for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from instrument.trace.events import Integers, Mask, Operator

NO_ROLE, FORWARD, BACKWARD, OPTIMIZER = range(4)
_GRADIENTS = "Gradients/"
_OPTIMIZER = "optimizer"
_NETWORK = "network"


def roles(operators: Sequence[Operator]) -> Integers:
    """Return the role of each operator.

    Where nothing is in a scope `network`, as in a network of the user's own making, all that is in a scope and has no
    other role is forward.
    """
    names = [operator.full_name for operator in operators]
    result = np.array([_role(name) for name in names], np.int64)
    if not (result == FORWARD).any():
        result[has_scope(operators) & (result == NO_ROLE)] = FORWARD
    return result


def has_scope(operators: Sequence[Operator]) -> Mask:
    """Return a mask of the operators that are in a scope of the network."""
    names = (operator.full_name for operator in operators)
    return np.array([name.startswith(_GRADIENTS) or name.count("/") > 1 for name in names], np.bool_)


def _role(full_name: str) -> int:
    if full_name.startswith(_GRADIENTS):
        return BACKWARD
    scopes = full_name.split("/")[:-1]
    if any(scope.startswith(_OPTIMIZER) for scope in scopes):
        return OPTIMIZER
    return FORWARD if any(scope.startswith(_NETWORK) for scope in scopes) else NO_ROLE
