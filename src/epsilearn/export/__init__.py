"""Released models in other formats."""
