"""What sites print of balances, read: Slurm's shares as recorded, and programs of their own by a pattern."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from federation import balances
from federation.balances import Balance
from federation.profile import BalanceRule
from providers.dialects.slurm.shares import Share, read_shares
from providers.errors import SchedulerDown, UnparsableOutput
from providers.types import BatchReply, Reply
from tests.unit.federation.values import a_profile

RECORDED = Path(__file__).resolve().parents[2] / "data" / "slurm" / "balances" / "22.05_sshare.txt"
DELTA = r"^(?P<account>[\w-]+)\s+(?P<left>-?[\d,.]+)\s+(?P<granted>[\d,.]+)"


def _reply(text: str, **how: Any) -> BatchReply:
    said = Reply(name="facet.balances", **{"rc": 0, "stdout": text, **how})
    return BatchReply(replies={"facet.balances": said})


def _rule(**given: Any) -> BalanceRule:
    return BalanceRule.model_validate(given)


def test_the_limit_of_an_account_binds_its_users_and_minutes_are_as_recorded() -> None:
    text = RECORDED.read_text()

    assert read_shares(text, user="alice", tres="billing") == (
        Share("bbka-delta-cpu", None, 0),
        Share("bbka-delta-gpu", 6000, 3),
    )
    assert read_shares(text, user="alice", tres="gres/gpu")[1] == Share("bbka-delta-gpu", 600, 2)
    assert read_shares(text, user="bob", tres="billing") == ()


def test_of_several_limits_the_one_that_leaves_least_counts() -> None:
    text = (
        "Account|User|GrpTRESMins|GrpTRESRaw\n"
        "root||cpu=100|cpu=95\n"
        " a||cpu=50|cpu=10\n"
        "  a|alice|cpu=30|cpu=1\n"
        " b||cpu=9|cpu=0\n"
        "  b|alice||cpu=0\n"
    )

    assert read_shares(text, user="alice", tres="cpu") == (Share("a", 100, 95), Share("b", 100, 95))


@pytest.mark.parametrize("cell", ["cpu", "cpu=x", "=5", "cpu=1,"])
def test_what_is_no_list_of_minutes_is_refused(cell: str) -> None:
    with pytest.raises(UnparsableOutput):
        read_shares(f"Account|User|GrpTRESMins|GrpTRESRaw\na|alice|{cell}|\n", user="alice", tres="cpu")


def test_minutes_become_the_sites_own_unit() -> None:
    rule = _rule(source="sshare", tres="gres/gpu", minutes_per_unit=60)

    found = balances.read(rule, _reply(RECORDED.read_text()), user="alice")

    assert found == (
        Balance("bbka-delta-cpu", None, Decimal("0.0000"), None),
        Balance("bbka-delta-gpu", Decimal("10.0000"), Decimal("0.0333"), Decimal("9.9667")),
    )
    assert balances.operations(rule)[0].argv[0] == "sshare"
    assert balances.operations(None) == ()


def test_a_sites_own_program_is_read_by_the_profiles_pattern() -> None:
    text = (
        "Project Summary for User alice:\n\n"
        "Account          Balance(Hours)  Deposited(Hours)  Project\n"
        "---------------  --------------  ----------------  -------\n"
        "bbka-delta-gpu         4,999.50          5,000.00  deep things\n"
        "bbka-delta-cpu              -20              1000  other\n"
    )
    rule = _rule(source="command", command=["/usr/local/bin/accounts"], pattern=DELTA)

    found = balances.read(rule, _reply(text), user="alice")

    assert found == (
        Balance("bbka-delta-gpu", Decimal("5000.0000"), Decimal("0.5000"), Decimal("4999.5000")),
        Balance("bbka-delta-cpu", Decimal("1000.0000"), Decimal("1020.0000"), Decimal("-20.0000")),
    )
    assert balances.source_of(rule) == "accounts"


def test_what_cannot_be_read_says_so_and_is_no_balance() -> None:
    rule = _rule(source="command", command=["accounts"], pattern=DELTA)

    with pytest.raises(UnparsableOutput, match="no line of accounts"):
        balances.read(rule, _reply("You have no accounts.\n"), user="alice")
    with pytest.raises(UnparsableOutput, match="no amount"):
        balances.read(rule, _reply("a  1.2.3  5\n"), user="alice")
    with pytest.raises(SchedulerDown, match="exit status 1"):
        balances.read(rule, _reply("", rc=1), user="alice")
    with pytest.raises(SchedulerDown, match="not installed"):
        balances.read(rule, _reply("", missing=True), user="alice")


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ({"source": "sshare", "command": ["x"]}, "command"),
        ({"source": "command", "pattern": DELTA}, "command"),
        ({"source": "command", "command": ["x"], "pattern": "("}, "pattern"),
        ({"source": "command", "command": ["x"], "pattern": r"(?P<account>\S+)"}, "pattern"),
        ({"source": "command", "command": ["x"]}, "pattern"),
        ({"source": "sshare", "minutes_per_unit": 0}, "minutes_per_unit"),
    ],
)
def test_a_rule_that_cannot_be_asked_is_refused_at_its_place(rule: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _rule(**rule)

    assert refused.value.errors()[0]["loc"][-1] == where


def test_only_slurm_has_sshare() -> None:
    with pytest.raises(ValidationError, match="only Slurm has sshare"):
        a_profile(dialect="machine", balance={"source": "sshare"})
