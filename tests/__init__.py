"""The tests. What several of them assert with tells as much as their own assertions do."""

import pytest

pytest.register_assert_rewrite("tests.calls", "tests.running", "tests.steady_load")
