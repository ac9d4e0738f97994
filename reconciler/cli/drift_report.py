"""What `drift` tells others than the one who typed it: an issue, and a message to a webhook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.cli.console import err
from reconciler.cli.text.lines import Span, Tone, line

if TYPE_CHECKING:
    from reconciler.forges.environment import Asked
    from reconciler.operations.drift import Drifted
    from reconciler.operations.drift_issue import Did, Filed
    from reconciler.operations.steps.invocation import Invocation


_SAID: Final[dict[Did, str]] = {
    "opened": "Opened an issue",
    "updated": "Updated the issue",
    "unchanged": "The issue says this already",
    "closed": "Closed the issue",
    "none": "No issue is open",
}


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Whom to tell."""

    invocation: Invocation
    asked: Asked
    has_issue: bool
    labels: tuple[str, ...]
    webhook: str | None
    """The variable that holds its address."""

    def check(self) -> None:
        """Refuse what cannot be told before clusters are asked.

        Raises:
            UsageError: It is not known where the forge or the webhook is.
            UserError: There is no token.
        """
        environ = self.invocation.environ
        if self.has_issue:
            from reconciler.forges.environment import settings_of

            settings_of(environ, self.asked, self.invocation.tool)
        if self.webhook is not None:
            from reconciler.forges.webhook import address_of

            address_of(environ, self.webhook, allows_http=self.asked.allows_http)

    def tell(self, drifted: Drifted) -> None:
        """Tell what was found: keep the issue, then send the message, once for as long as the issue says the same."""
        from reconciler.cli.text.drift_text import drift_message, issue_markdown

        filed: Filed | None = None
        if self.has_issue:
            from reconciler.operations.drift_issue import file_issue

            filed = file_issue(
                self.invocation, drifted, self.asked, lambda remedy: issue_markdown(drifted, remedy), self.labels
            )
            url = filed.issue.url if filed.issue is not None else ""
            err().show([line(Span(_SAID[filed.did], Tone.STRONG), f" on {filed.forge}{': ' if url else ''}{url}")])
        is_news = filed is None or filed.did in {"opened", "updated"}
        if self.webhook is not None and drifted.failing and is_news:
            from reconciler.forges.webhook import send

            link = (filed.issue.url if filed and filed.issue else "") or self.invocation.ci_url or ""
            send(
                self.invocation.environ,
                self.webhook,
                drift_message(drifted, link),
                tool=self.invocation.tool,
                allows_http=self.asked.allows_http,
            )
            err().show([line(f"Sent to the webhook in {self.webhook}")])
