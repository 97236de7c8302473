"""The table of `make campaign`: what was tried to break the library, from benchmarks/results/campaigns.json.

`table: campaigns` has a line for each campaign, and one about where and when they ran. The number of cases of one is
the figure campaigns/kernel/cases, of all campaigns/all/cases; likewise failures and minutes.
"""

from typing import Any

from paper.results import Row, result

HEAD = "| campaign | minutes | cases | failures | kinds of cases |\n|---|---:|---:|---:|---|"


def campaign_rows(saved: dict[str, Any]) -> list[Row]:
    """Cases, failures and minutes of each campaign and of all together."""
    rows = saved["rows"]
    counts = {row["campaign"]: _counts([row]) for row in rows} | {"all": _counts(rows)}
    return [result("campaigns", "", name, metric, value) for name, of in counts.items() for metric, value in of.items()]


def _counts(rows: list[dict[str, Any]]) -> dict[str, float]:
    cases, failures, seconds = (sum(row[name] for row in rows) for name in ("cases", "failures", "seconds"))
    return {"cases": cases, "failures": failures, "minutes": round(seconds / 60)}


def campaign_table(saved: dict[str, Any]) -> str:
    """Campaigns in lines, the most frequent kinds of cases first, and the circumstances below."""
    lines = [HEAD]
    for row in saved["rows"]:
        kinds = sorted(row["kinds"].items(), key=lambda kind: -kind[1])
        counts = _counts([row])
        numbers = " | ".join(f"{counts[name]:,}" for name in ("minutes", "cases", "failures"))
        lines.append(f"| {row['campaign']} | {numbers} | {'; '.join(f'{kind} ({count:,})' for kind, count in kinds)} |")
    facts = saved["circumstances"]
    seeds = sorted({row["seed"] for row in saved["rows"]})
    threads = f"{facts['threads']} thread{'s' if facts['threads'] != 1 else ''}"
    commits = sorted({row.get("commit", facts["commit"]) for row in saved["rows"]})
    where = [f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"]
    where += [f"{facts['machine']}, {threads}", f"torch {facts['torch']}"]
    where.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
    return "\n".join(lines) + f"\n\n<sub>{'; '.join(where)}</sub>"
