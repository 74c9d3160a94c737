"""Logging in to Amazon MSK as an IAM principal: a token that is signed here, for OAUTHBEARER (extra `msk`).

MSK takes such tokens at the port at which it takes Java's mechanism AWS_MSK_IAM. How they are made, and where
credentials are looked for (environment, profiles, containers, instances), is left to Amazon's own library,
aws-msk-iam-sasl-signer-python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.client.sasl import OAuthToken
from fencepost.errors import AuthenticationError, ConfigurationError
from fencepost.extras import require

__all__ = ["MskIam", "region_of"]

_SESSION: Final = "fencepost"  # the name of a role's session, in the audit logs of AWS
_MSK_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")


@dataclass(frozen=True, slots=True)
class MskIam:
    """A `sasl_oauth_token_provider` for Amazon MSK: by the default credentials of AWS, or those of a profile or a role.

    `region`: the cluster's, as in "eu-west-1"; None: AWS_REGION's or the profile's. With `role_arn` that role is
    assumed (a call of AWS STS) by the default credentials. Raises ConfigurationError without the extra `msk`.
    """

    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None

    def __post_init__(self) -> None:
        require("msk", "sasl_mechanism=AWS_MSK_IAM")
        if self.profile is not None and self.role_arn is not None:
            raise ConfigurationError(
                "AWS_MSK_IAM: a profile or a role, not both; a profile may name the role it assumes"
            )

    def __call__(self) -> OAuthToken:
        """Return a new token, valid for 15 minutes. Raises OSError without credentials, and botocore's errors."""
        import botocore.session  # with all of AWS's client, which few need
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.credentials import CredentialProvider

        session = botocore.session.Session(profile=self.profile)
        region = self.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        if not region:
            raise AuthenticationError("AWS_MSK_IAM: no region in the brokers' names; set AWS_REGION to the cluster's")
        if self.role_arn is not None:
            name = self.role_session_name or _SESSION
            return OAuthToken(*MSKAuthTokenProvider.generate_auth_token_from_role_arn(region, self.role_arn, name))
        credentials = session.get_credentials()
        if credentials is None:  # the signer would fail without a reason
            # Also when the instance's metadata service does not answer, which may pass.
            raise OSError("AWS_MSK_IAM: no AWS credentials: no AWS_ACCESS_KEY_ID, profile, or instance's role")

        class Found(CredentialProvider):  # type: ignore[misc] # the package has no types
            def load(self) -> object:
                return credentials

        return OAuthToken(*MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Found()))


def region_of(servers: str | Sequence[str]) -> str | None:
    """Return the region in the name of the first MSK broker; None if it has another name, such as an alias."""
    first = (servers.split(",") if isinstance(servers, str) else servers)[0].strip()
    found = _MSK_HOST.search(first)
    return None if found is None else found[1]
