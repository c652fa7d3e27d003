"""What routes and pages use: the names from `base` and `edge` that most of them need, in one place.

Nothing here loads Pillow, lxml, webauthn, markdown or dnspython: these stay in the modules that need them.
"""

from entrypoints.http.base import cookies
from entrypoints.http.base.context import (
    acting,
    acting_directory,
    acting_key,
    acting_member,
    acting_on_platform,
    anonymous,
    app_context,
    caller,
    ports,
    request_record,
    setup_reader,
    signed_in,
)
from entrypoints.http.base.redirects import FORM_NOT_SENT, fill_in, next_of, redirect, safe_next, to_sign_in, with_next
from entrypoints.http.base.rendering.avatars import image_path, load_images
from entrypoints.http.base.rendering.labels import FAILURE_REASONS, LABELS, application_of, failure_label, label, sign_in_methods
from entrypoints.http.base.rendering.templates import Page, page_response, render
from entrypoints.http.base.request_record import RequestRecord
from entrypoints.http.edge.access import (
    anyone,
    application,
    member,
    member_page,
    operations,
    page_session,
    person,
    person_anywhere,
    platform_owner,
    platform_page,
    pre_auth,
    scim_client,
    service_key,
    setup_link,
    sign_in_session,
    verified_person,
)
from entrypoints.http.edge.access.callers import presented_token
from entrypoints.http.edge.access.declaration import Access, ApplicationTokens, Credentials, Restricted, Taking, View
from entrypoints.http.edge.access.effects import (
    ACTS_ON_ME,
    BY_PEOPLE,
    CHANGES,
    ENDS,
    GIVES,
    LEAVES,
    MINE,
    OWNS,
    PREVIEWS,
    PROMOTES,
    PROTOCOL,
    REMOVES_FACTORS,
    SHOWS,
    SHOWS_IMPOSED,
    SHOWS_PEOPLE,
    SIGNS_OUT,
    UNLOCKS,
    WAYS_IN,
    EffectRow,
)
from entrypoints.http.edge.access.guards import AccessDecorator
from entrypoints.http.edge.bodies import (
    AT_LEAST_ONE_FIELD,
    MAX_TEXT,
    PRINTABLE,
    BodyInvalid,
    DateTime,
    Description,
    EmailAddress,
    Empty,
    Id,
    Message,
    Name,
    PasswordText,
    Reason,
    RepeatableText,
    RequestModel,
    ResponseModel,
    Text,
    Texts,
    Timestamp,
    TokenText,
    absent_if_none,
    decode,
    optional,
    read_in_thread,
)
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.forms import FORM, parameters, read_fields, read_form, read_image, read_request_of_application, uploaded_file
from entrypoints.http.edge.limits import limited_if_refused, proof_accepted, sign_in_goes_on, take_token
from entrypoints.http.edge.openapi import (
    any_origin,
    authenticates,
    describes,
    describes_page,
    docs_of,
    has_version,
    refuses,
    serves_both,
    speaks_oauth,
    takes,
    takes_image,
    takes_version,
)
from entrypoints.http.edge.openapi.security import CLIENT_SECURITY
from entrypoints.http.edge.proofs import read_proof
from entrypoints.http.edge.queries import Flag, Offset, PageQuery, Pagination, PartQuery, Query, joined_query, path_id, repeatable
from entrypoints.http.edge.reauthentication import KEPT_FORM, OWN_PROOF, take_form, to_reauthentication, to_reauthentication_for
from entrypoints.http.edge.signatures import before_body, returns
from entrypoints.http.edge.streaming import stream_list
from entrypoints.http.edge.typed_fields import link_token, trim
