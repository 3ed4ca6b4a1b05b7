"""Documentation of network, security and metrics keys without an effect here.

A key moves to core/configs/docs.py when it gets an effect.
"""

from __future__ import annotations

UNUSED_NETWORK: dict[str, str] = {
    "allow.everyone.if.no.acl.found": "Let an authorizer grant everyone access to resources without an ACL.",
    "auto.include.jmx.reporter": "Report metrics through JMX even if `metric.reporters` does not list that reporter.",
    "client.quota.callback.class": "Java class that computes the quotas of clients.",
    "config.providers": "Names of plug-ins that fetch configuration values from other sources.",
    "connection.failed.authentication.delay.ms": "Time in ms that a connection stays open after failed authentication.",
    "connections.max.reauth.ms": "Maximum time in ms before a SASL client must authenticate again. 0 means no limit.",
    "control.plane.listener.name": "Separate listener for requests from the controller to brokers.",
    "controller.quota.window.num": "Number of samples kept to limit the rate of topic changes.",
    "controller.quota.window.size.seconds": "Length in seconds of one sample of the rate of topic changes.",
    "delegation.token.expiry.check.interval.ms": "Interval in ms at which expired delegation tokens are removed.",
    "delegation.token.expiry.time.ms": "Time in ms after which a delegation token must be renewed.",
    "delegation.token.master.key": "Older name of `delegation.token.secret.key`.",
    "delegation.token.max.lifetime.ms": "Maximum time in ms for which a delegation token can be renewed.",
    "delegation.token.secret.key": "Secret that signs delegation tokens. Must be the same on all brokers.",
    "early.start.listeners": "Listeners that open before the authorizer is ready.",
    "kafka.metrics.polling.interval.secs": "Interval in seconds at which `kafka.metrics.reporters` are called.",
    "kafka.metrics.reporters": "Java classes that report the broker's own metrics.",
    "max.connection.creation.rate": "Maximum number of new connections per second.",
    "max.connections.per.ip.overrides": (
        "Values of `max.connections.per.ip` for single addresses or host names, as host:count pairs."
    ),
    "metric.reporters": "Java classes that report metrics.",
    "metrics.num.samples": "Number of samples kept to compute a metric.",
    "metrics.recording.level": "Most detailed level of metrics that is recorded: INFO, DEBUG or TRACE.",
    "metrics.sample.window.ms": "Length in ms of one sample of a metric.",
    "num.io.threads": "Number of threads that handle requests.",
    "principal.builder.class": "Java class that derives a principal from a client's credentials.",
    "quota.consumer.default": "Maximum bytes per second that a consumer may fetch, before quotas became dynamic.",
    "quota.producer.default": "Maximum bytes per second that a producer may write, before quotas became dynamic.",
    "quota.window.num": "Number of samples kept to limit the rate of a client.",
    "quota.window.size.seconds": "Length in seconds of one sample of the rate of a client.",
    "request.timeout.ms": "Maximum time in ms that a broker waits for a response from another broker.",
    "sasl.client.callback.handler.class": "Java class that supplies the credentials of a SASL client.",
    "sasl.enabled.mechanisms": "SASL mechanisms that clients may use.",
    "sasl.jaas.config": "Login of a SASL listener, in JAAS format.",
    "sasl.kerberos.kinit.cmd": "Path of Kerberos' kinit command.",
    "sasl.kerberos.min.time.before.relogin": "Minimum time in ms between two Kerberos logins.",
    "sasl.kerberos.principal.to.local.rules": "Rules that map Kerberos principals to short names.",
    "sasl.kerberos.service.name": "Kerberos name of the Kafka service.",
    "sasl.kerberos.ticket.renew.jitter": "Random fraction of the time before a Kerberos ticket is renewed.",
    "sasl.kerberos.ticket.renew.window.factor": "Fraction of a Kerberos ticket's lifetime after which it is renewed.",
    "sasl.login.callback.handler.class": "Java class that supplies the credentials of a SASL login.",
    "sasl.login.class": "Java class that performs a SASL login.",
    "sasl.login.connect.timeout.ms": (
        "Maximum time in ms that a SASL login waits for a connection to its identity provider."
    ),
    "sasl.login.read.timeout.ms": (
        "Maximum time in ms that a SASL login waits for a response from its identity provider."
    ),
    "sasl.login.refresh.buffer.seconds": "Minimum time in seconds between the renewal of a SASL login and its expiry.",
    "sasl.login.refresh.min.period.seconds": "Minimum time in seconds before a SASL login is renewed.",
    "sasl.login.refresh.window.factor": "Fraction of a SASL login's lifetime after which it is renewed.",
    "sasl.login.refresh.window.jitter": "Maximum random fraction that is added to `sasl.login.refresh.window.factor`.",
    "sasl.login.retry.backoff.max.ms": "Maximum time in ms before a failed SASL login is retried.",
    "sasl.login.retry.backoff.ms": "Initial time in ms before a failed SASL login is retried.",
    "sasl.mechanism.controller.protocol": "SASL mechanism for connections from brokers to KRaft controllers.",
    "sasl.mechanism.inter.broker.protocol": "SASL mechanism for connections between brokers.",
    "sasl.oauthbearer.allow.unverified.audience": "Accept tokens for any audience.",
    "sasl.oauthbearer.allow.unverified.issuer": "Accept tokens from any issuer.",
    "sasl.oauthbearer.assertion.algorithm": (
        "Signature algorithm of an assertion to the identity provider: RS256 or ES256."
    ),
    "sasl.oauthbearer.assertion.claim.aud": "Audience in an assertion.",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "Time in seconds after which an assertion expires.",
    "sasl.oauthbearer.assertion.claim.iss": "Issuer in an assertion.",
    "sasl.oauthbearer.assertion.claim.jti.include": "Include a unique id in an assertion.",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": (
        "Time in seconds before its creation from which an assertion is valid."
    ),
    "sasl.oauthbearer.assertion.claim.sub": "Subject in an assertion.",
    "sasl.oauthbearer.assertion.file": "File with an assertion that is already signed.",
    "sasl.oauthbearer.assertion.private.key.file": "File with the private key that signs assertions.",
    "sasl.oauthbearer.assertion.private.key.passphrase": "Passphrase of the private key that signs assertions.",
    "sasl.oauthbearer.assertion.template.file": "File with additional header fields and claims for an assertion.",
    "sasl.oauthbearer.client.credentials.client.id": "Client id at the identity provider.",
    "sasl.oauthbearer.client.credentials.client.secret": (
        "Secret that belongs to the client id at the identity provider."
    ),
    "sasl.oauthbearer.clock.skew.seconds": (
        "Maximum difference in seconds between the clocks of the broker and a token's issuer."
    ),
    "sasl.oauthbearer.expected.audience": "Accepted audiences of a token.",
    "sasl.oauthbearer.expected.issuer": "Accepted issuer of a token.",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "Interval in ms at which the issuer's keys are fetched.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": (
        "Maximum time in ms before a failed fetch of the issuer's keys is retried."
    ),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": (
        "Initial time in ms before a failed fetch of the issuer's keys is retried."
    ),
    "sasl.oauthbearer.jwks.endpoint.url": "URL of the issuer's keys.",
    "sasl.oauthbearer.jwt.retriever.class": "Java class that retrieves tokens.",
    "sasl.oauthbearer.jwt.validator.class": "Java class that validates tokens.",
    "sasl.oauthbearer.scope": "Scope that is requested from the identity provider.",
    "sasl.oauthbearer.scope.claim.name": "Claim of a token that contains its scope.",
    "sasl.oauthbearer.sub.claim.name": "Claim of a token that contains its subject.",
    "sasl.oauthbearer.token.endpoint.url": "URL at which the identity provider issues tokens.",
    "sasl.server.callback.handler.class": "Java class that verifies the credentials of SASL clients.",
    "sasl.server.max.receive.size": (
        "Maximum size in bytes of a message from a SASL client that is not yet authenticated."
    ),
    "security.providers": "Java classes that provide additional security algorithms.",
    "server.max.startup.time.ms": "Maximum time in ms for the startup, after which the server stops.",
    "socket.connection.setup.timeout.max.ms": "Maximum time in ms for repeated attempts to connect to another broker.",
    "socket.connection.setup.timeout.ms": "Maximum time in ms for the first attempt to connect to another broker.",
    "ssl.allow.dn.changes": "Allow a replacement certificate to have a different subject.",
    "ssl.allow.san.changes": "Allow a replacement certificate to lack some of the previous host names.",
    "ssl.endpoint.identification.algorithm": (
        "Verification of the broker's host name by a client: https, or empty for no verification."
    ),
    "ssl.keymanager.algorithm": "Java algorithm that manages the TLS keys.",
    "ssl.principal.mapping.rules": "Rules that map the subjects of certificates to short names.",
    "ssl.protocol": "Newest TLS version that a client uses.",
    "ssl.provider": "Java provider of TLS.",
    "ssl.secure.random.implementation": "Java source of random numbers for TLS.",
    "ssl.trustmanager.algorithm": "Java algorithm that verifies trust in certificates.",
    "super.users": "Principals to which an authorizer grants access to everything.",
    "telemetry.max.bytes": "Maximum size in bytes of the metrics that a client sends in one request (KIP-714).",
    "unstable.api.versions.enable": "Enable API versions that are still in development.",
    "unstable.feature.versions.enable": "Enable feature versions that are still in development.",
}
