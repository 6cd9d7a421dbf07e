"""What is searched: parameters, constraints between them, and the map to the unit cube."""

from protein.space.parameters import Array, Categorical, Float, Integer, Parameter
from protein.space.space import Space

__all__ = ["Array", "Categorical", "Float", "Integer", "Parameter", "Space"]
