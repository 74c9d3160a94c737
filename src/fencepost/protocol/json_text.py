"""Read JSON that another process wrote."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse_json"]


def parse_json(text: str | bytes) -> Any:
    """Return the value of a text.

    Raises:
        ValueError: It is not JSON, is not UTF-8, has a number of thousands of digits, or is nested too deeply.
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        if type(error) is not ValueError:  # its text says where
            raise
        raise ValueError("a number has too many digits") from None
