"""What accounts have used: charged once a minute from the allocations, and halved with time.

The charge is one statement over what is allocated now and what was freed since the charge before, so it costs
the same however long the history is. It is exact whenever it runs: a leader that was away for an hour charges
that hour. Allocations stay in the table for the retention, which is longer than any pause in which nothing is
pruned.

Budgets need more: what was used since the beginning of a period. That is kept by account and day, by a
trigger in the transaction that frees an allocation, and is summed up when a leader begins, a
period begins, or an account is edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.model.users import PROGRAM_NAMES, PROGRAMS_OF
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["AccountUse"]


class AccountUse(Transactions):
    """The part of the store about the use of accounts."""

    async def charge_accounts(
        self, epoch: Epoch, half_life_s: float, weights: Mapping[str, float]
    ) -> dict[str, float]:
        """Charge accounts for what they used since the charge before.

        Parameters
        ----------
        half_life_s
            After this time a use counts half.
        weights
            What a unit of each resource type of the graph counts for each second; other types are free.

        Returns
        -------
        dict
            Use of each account's own work, without that of accounts below it. An account that used next to
            nothing may be missing.
        """
        texts = [repr(float(weight)) for weight in weights.values()]
        parameters = {"half_life_s": float(half_life_s), "types": list(weights), "weights": texts}
        rows, *_ = await self._write(
            epoch, Statement("charge_accounts", parameters), Statement("forget_use"), Statement("forget_days")
        )
        return {row["account"]: row["use"] for row in rows if row["account"]}

    async def charge_users(
        self, epoch: Epoch, half_life_s: float, weights: Mapping[str, float], accounts: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """Charge the users of some accounts for what they used since the charge before, and forget the use of
        users of all others.

        Parameters
        ----------
        half_life_s, weights
            As for `charge_accounts`.
        accounts
            Whose own work is shared among users.

        Returns
        -------
        dict
            Use by account and user (`fluxqueue.queue.model.users.user_of`). A user who used next to nothing
            may be missing.
        """
        parameters = {
            "half_life_s": float(half_life_s),
            "types": list(weights),
            "weights": [repr(float(weight)) for weight in weights.values()],
            "accounts": list(accounts),
            "programs": [f"{each}%" for each in PROGRAM_NAMES],
            "programs_of": PROGRAMS_OF,
        }
        forget = Statement("forget_users", {"accounts": list(accounts)})
        rows, *_ = await self._write(epoch, Statement("charge_users", parameters), forget)
        uses: dict[str, dict[str, float]] = {name: {} for name in accounts}
        for row in rows:
            if row["username"]:
                uses[row["account"]][row["username"]] = row["use"]
        return uses

    async def spent(self, periods: Sequence[tuple[str, str, date]]) -> dict[tuple[str, str], float]:
        """Return what allocations that are freed used since a day.

        Parameters
        ----------
        periods
            A name, an account whose use counts for this name, and the first day that counts.

        Returns
        -------
        dict
            Amount-seconds by name and resource type.
        """
        names, accounts = [name for name, _, _ in periods], [account for _, account, _ in periods]
        starts = [start.isoformat() for _, _, start in periods]
        rows = await self._read("spent_in_periods", budgets=names, accounts=accounts, starts=starts)
        return {(row["budget"], row["type"]): row["use"] for row in rows}
