"""Finds the remedy for an error of the lake's storage, by the error's message."""

from __future__ import annotations

import re

from cdc.errors import LakeError

_CREDENTIALS = (
    "Set lake.hadoop.fs.s3a.access.key and lake.hadoop.fs.s3a.secret.key (by references), or"
    " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or run on a machine whose"
    " role may use the bucket."
)
_KEY_OF_AZURE = (
    "In lake.hadoop, set fs.azure.account.key.ACCOUNT.dfs.core.windows.net (by a reference), or"
    " fs.azure.account.auth.type and the settings of its type; check the account in lake.url."
)
# Errors of Azure's file system begin with their message, not with the name of their class.
_OF_AZURE = r'Operation failed: "[^"]*", '
_OF_GOOGLE = r"GoogleJsonResponseException: "
_REMEDIES = (
    (
        r"GoogleHadoopFileSystem not found",
        "With spark.jars: provided, the cluster needs Google's gcs-connector for Hadoop 3; with"
        " bundled, Tributary fetches it.",
    ),
    (
        rf"No valid credential configuration|Error getting access token|Failed to refresh token"
        rf"|{_OF_GOOGLE}401",
        "In lake.hadoop, set fs.gs.auth.service.account.json.keyfile to the file with an account's"
        " key, or run on a machine of Google Cloud whose account may use the bucket.",
    ),
    (
        rf"{_OF_GOOGLE}403",
        "Give the account the role roles/storage.objectAdmin on the bucket.",
    ),
    # A missing object has an error of its own.
    (rf"{_OF_GOOGLE}404", "Create the bucket, or correct lake.url."),
    (
        r"AzureBlobFileSystem not found|No FileSystem for scheme \"?abfss?\b",
        "Spark needs hadoop-azure of its Hadoop's version and wildfly-openssl: name both in"
        " spark.jars in spark.conf, or add them to the cluster.",
    ),
    (
        r"No FileSystem for scheme",
        "Correct the scheme in lake.url, or name the jars of its file system in spark.jars in"
        " spark.conf.",
    ),
    (
        r"AADToken: HTTP connection",
        "In lake.hadoop, correct fs.azure.account.oauth2.client.id,"
        " fs.azure.account.oauth2.client.secret and fs.azure.account.oauth2.client.endpoint; the"
        " machines of Spark have to reach that endpoint.",
    ),
    (
        r"Configuration property \S+ not found|Failure to initialize configuration for"
        r"|fs\.azure\.account\.key",
        _KEY_OF_AZURE,
    ),
    (
        r"Server failed to authenticate the request",
        f"The store does not accept the credentials. {_KEY_OF_AZURE} The machine's clock has to be"
        " right.",
    ),
    (
        rf"{_OF_AZURE}403|AuthorizationPermissionMismatch|AuthorizationFailure",
        "Give the account that Tributary uses the role Storage Blob Data Contributor on the"
        " container, and let the storage account's firewall pass the machines of Spark.",
    ),
    # A missing file has another text.
    (
        r"[Ss]pecified (filesystem|container) does not exist|FilesystemNotFound|ContainerNotFound",
        "Create the container, or correct lake.url.",
    ),
    (
        r"SIMPLE authentication is not enabled|Client cannot authenticate via|GSSException"
        r"|KrbException",
        "The cluster asks for Kerberos: get a ticket with `kinit`, or set"
        " spark.kerberos.principal and spark.kerberos.keytab in spark.conf.",
    ),
    (
        r"SafeModeException|Name node is in safe mode",
        "The name node takes no changes while it is in safe mode. It leaves it by itself after its"
        " start, unless blocks are missing; if a person has turned it on, run"
        " `hdfs dfsadmin -safemode leave`.",
    ),
    (
        r"StandbyException|not supported in state standby",
        "Name the nameservice in lake.url instead of one name node, and give Spark its settings by"
        " HADOOP_CONF_DIR.",
    ),
    (
        r"AccessControlException|Permission denied: user=",
        "Give the user that Tributary has on HDFS the right to write: create the lake's folder and"
        " hand it over with `hdfs dfs -chown`, or set HADOOP_USER_NAME or Kerberos's principal to"
        " the user that owns it.",
    ),
    (
        r"S3AFileSystem not found",
        "With spark.jars: provided, the cluster needs hadoop-aws of its Hadoop's version and the"
        " AWS SDK that belongs to it; with bundled, Tributary fetches both.",
    ),
    (
        r"NoSuchBucket|UnknownStoreException|bucket does not exist",
        "Create the bucket, or correct lake.url. In another region or at another store, set"
        " lake.hadoop.fs.s3a.endpoint.",
    ),
    (r"Unable to load (AWS )?credentials|No AWS Credentials", _CREDENTIALS),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|InvalidClientTokenId",
        f"The store does not accept the credentials. {_CREDENTIALS}",
    ),
    (
        r"AccessDenied|AllAccessDisabled|Status Code: 403",
        "Allow s3:ListBucket, s3:GetBucketLocation and s3:AbortMultipartUpload on the bucket, and"
        " s3:GetObject, s3:PutObject and s3:DeleteObject below the lake's folder; with SSE-KMS also"
        " kms:GenerateDataKey and kms:Decrypt on the key.",
    ),
    (
        rf"SlowDown|Status Code: 503|ThrottlingException|{_OF_GOOGLE}(429|503)"
        rf"|{_OF_AZURE}(429|503)",
        "The store is busy. Run again later, or lower spark.parallel_tables.",
    ),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|Status Code: 301",
        "The bucket is in another region: set lake.hadoop.fs.s3a.endpoint.region, or"
        " lake.hadoop.fs.s3a.endpoint to that region's.",
    ),
    (
        r"SSLException|SSLHandshakeException|PKIX path|CertPathBuilderException"
        r"|java\.security\.cert\.|InvalidAlgorithmParameterException",
        "Check whether the endpoint speaks TLS: for one that does not, write http:// in"
        " lake.hadoop.fs.s3a.endpoint. A certificate of your own has to be in Java's trust store"
        " (javax.net.ssl.trustStore in spark.driver.extraJavaOptions and in the executors'), of the"
        " type JKS, which Java reads without a password.",
    ),
    (
        r"ConnectException|ConnectTimeoutException|UnknownHostException|SocketTimeoutException"
        r"|NoRouteToHostException|Connection refused|NoHttpResponseException"
        r"|SocketException: (Connection reset|Broken pipe)",
        "The store does not answer. Check that it runs, and lake.url, the endpoint in"
        " lake.hadoop, the proxy and the network; then run again.",
    ),
)
_OTHERWISE = "Check the lake's URL, its credentials (lake.hadoop) and its permissions."


def storage_remedy(reason: str) -> str:
    """Return the remedy for an error of the lake's file system.

    Args:
        reason: The message of the Java exception.
    """
    return known_remedy(reason) or _OTHERWISE


def known_remedy(reason: str) -> str | None:
    """Return the remedy for an error of the lake's file system; None for an unknown error.

    Args:
        reason: The message of the Java exception.
    """
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, reason)), None)


def storage_error(what: str, reason: str, *, path: str) -> LakeError:
    """Return the error for a file or folder of the lake that cannot be used.

    Args:
        what: Beginning of the error message, for example ``/lake/orders cannot be accessed``.
        reason: The message of the Java exception.
        path: Path of the file or folder.
    """
    # A store adds two identifiers of the request to its answer, the second one twice.
    short = re.sub(r", S3 Extended Request ID: \S+$|; S3 Extended Request ID: [^;)]+", "", reason)
    return LakeError(f"{what}: {short}", remedy=storage_remedy(reason), path=path)
