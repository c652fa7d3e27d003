"""The facts that follow from a sign-in's proofs, and from an account's factors."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from core.accounts.model.accounts import new_account
from core.kernel.proofs import (
    Acr,
    Factor,
    FactorKind,
    Method,
    Proof,
    Proofs,
    Strength,
    acr_of,
    amr_of,
    complete,
    covers,
    every_proof,
    first_method_of,
    first_proof,
    in_session,
    is_by_provider,
    is_fresh,
    joined,
    methods_of,
    newest_sign_in,
    proved_at,
    reachable_strength,
    renewed,
    required_strength,
    restriction_of,
    second_of,
    seen_in,
    session_strength,
    strength_of,
    with_second,
)
from core.kernel.sign_in_policy.silent_sign_ins import beside_own, with_silent, with_vouching
from core.kernel.values import Email
from tests.tables import table

NOW, MINUTE = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC), timedelta(minutes=1)
TOTP, BACKUP_CODE = Proof(Method.TOTP, NOW), Proof(Method.BACKUP_CODE, NOW)
ACME, OTHER, OKTA = (UUID(int=number) for number in (1, 2, 3))
REPEATABLE = settings(max_examples=300)
PROOFS = st.lists(
    st.builds(
        Proof,
        st.sampled_from([None, *Method]),
        st.integers(0, 60).map(lambda minutes: NOW - minutes * MINUTE),
        is_fresh=st.booleans(),
        user_verified=st.booleans(),
        phishing_resistant=st.booleans(),
    ),
    max_size=4,
).map(tuple)
OF_CONNECTION = st.builds(
    Proof,
    st.just(Method.CONNECTION),
    st.just(NOW),
    user_verified=st.booleans(),
    connection=st.just(OKTA),
    org=st.sampled_from([None, ACME, OTHER]),
    until=st.sampled_from([None, NOW - MINUTE, NOW, NOW + MINUTE]),
)
OF_SESSION = st.lists(st.one_of(PROOFS.flatmap(lambda some: st.sampled_from(some or (TOTP,))), OF_CONNECTION), max_size=4).map(tuple)

# The first factor's name; amr without and with a second factor; whether an identity provider authenticated the user
TABLE = [
    ("password", ["pwd"], ["pwd", "otp", "mfa"], False),
    ("email", ["otp"], ["otp", "mfa"], False),
    ("owner_recovery", [], ["otp", "mfa"], False),
    ("codehost", [], ["otp", "mfa"], True),
    ("websuite", [], ["otp", "mfa"], True),
    ("officesuite", [], ["otp", "mfa"], True),
]


@table("hardware", [True, False])
def test_a_passkey_that_verified_its_user_counts_as_both_factors(hardware: bool) -> None:
    proofs = (Proof(Method.PASSKEY, NOW, user_verified=True, phishing_resistant=True, hardware=hardware),)
    assert strength_of(proofs) is Strength.PHISHING_RESISTANT
    assert covers(proofs, [APP])
    assert amr_of(proofs) == ["hwk" if hardware else "swk", "user", "mfa"]
    classes = {(): "phr", (Acr.MFA,): "mfa", (Acr.PASSWORD, Acr.MFA): "mfa", (Acr.PHISHING_RESISTANT,): "phr"}
    assert {asked: acr_of(proofs, asked) for asked in classes} == classes
    assert acr_of((Proof(Method.PASSWORD, NOW),), (Acr.MFA,)) == "pwd", "no asked class is met"


@table(("name", "alone", "with_second", "by_provider"), TABLE)
def test_the_claims_follow_from_the_proofs(name: str, alone: list[str], with_second: list[str], *, by_provider: bool) -> None:
    first = first_proof(name, NOW)
    assert (strength_of((first,)), acr_of((first,)), amr_of((first,))) == (Strength.ONE, Acr.PASSWORD, alone)
    for second in (TOTP, BACKUP_CODE):
        proofs = complete(first, second)
        assert (strength_of(proofs), acr_of(proofs), amr_of(proofs)) == (Strength.TWO, Acr.MFA, with_second)
        assert (first_method_of(proofs), is_by_provider(proofs), proved_at(proofs)) == (name, by_provider, NOW)


def test_an_unknown_method_of_an_earlier_release_is_a_first_factor_without_a_name() -> None:
    proofs = (Proof(None, NOW),)
    assert (strength_of(proofs), acr_of(proofs), amr_of(proofs)) == (Strength.ONE, Acr.PASSWORD, [])
    assert (first_method_of(proofs), is_by_provider(proofs), is_fresh(proofs)) == (None, False, True)


@table(
    ("proofs", "strength"),
    [
        ((), Strength.NONE),
        ((TOTP, BACKUP_CODE), Strength.NONE),
        ((Proof(Method.PASSWORD, NOW), Proof(Method.EMAIL, NOW)), Strength.ONE),
        ((Proof(Method.PASSWORD, NOW, user_verified=True),), Strength.TWO),
        ((Proof(Method.PASSWORD, NOW, phishing_resistant=True),), Strength.ONE),
        ((Proof(Method.PASSWORD, NOW, user_verified=True, phishing_resistant=True),), Strength.PHISHING_RESISTANT),
    ],
)
def test_a_second_factor_counts_only_beside_a_first_one(proofs: Proofs, strength: Strength) -> None:
    assert strength_of(proofs) is strength


@table("fresh", [True, False])
def test_a_second_factor_makes_a_sign_in_at_a_provider_fresh(*, fresh: bool) -> None:
    first = first_proof("websuite", NOW - MINUTE, is_fresh=fresh)
    assert is_fresh((first,)) is fresh
    assert complete(first, TOTP) == (replace(first, is_fresh=True), TOTP)
    assert is_fresh(complete(first, TOTP))


def test_the_newest_first_factor_dates_the_sign_in() -> None:
    older, newer = first_proof("websuite", NOW - 2 * MINUTE, is_fresh=False), first_proof("password", NOW - MINUTE)
    for proofs in ((older, newer, TOTP), (TOTP, newer, older)):
        assert (proved_at(proofs), first_method_of(proofs), is_fresh(proofs)) == (NOW - MINUTE, "password", True)


@REPEATABLE
@given(proofs=PROOFS, further=PROOFS)
def test_a_further_proof_never_lowers_the_strength(proofs: Proofs, further: Proofs) -> None:
    assert strength_of(proofs) <= strength_of((*proofs, *further)) == strength_of((*further, *proofs))


PASSWORD, MAILBOX, APP = Factor(FactorKind.PASSWORD), Factor(FactorKind.MAILBOX, NOW), Factor(FactorKind.TOTP, NOW)


def test_an_account_with_a_second_factor_requires_it() -> None:
    one, two = (first_proof("password", NOW),), complete(first_proof("password", NOW), TOTP)
    assert (required_strength([]), required_strength([PASSWORD, MAILBOX]), required_strength([APP])) == (1, 1, 2)
    assert covers(one, [PASSWORD, MAILBOX])
    assert covers(two, [PASSWORD, MAILBOX])
    assert covers(two, [PASSWORD, APP])
    assert not covers(one, [PASSWORD, APP])
    assert not covers((), [])


def test_the_factors_of_an_account_follow_from_its_fields() -> None:
    account = new_account(Email("ada@example.com"), None, NOW)
    assert (account.factors, account.second_factors) == ((), ())
    account = replace(account, password_hash="hash", email_verified_at=NOW, mfa_enabled_at=NOW)
    assert account.factors == (PASSWORD, MAILBOX, APP)
    assert account.second_factors == (APP,)
    assert [factor.is_second for factor in account.factors] == [False, False, True]


def test_keys_of_an_account_are_second_factors_if_its_user_made_them_that() -> None:
    account = replace(new_account(Email("ada@example.com"), None, NOW), passkey_count=1, security_key_count=1)
    passkey, key = Factor(FactorKind.PASSKEY), Factor(FactorKind.SECURITY_KEY)
    assert (account.factors, account.second_factors) == ((passkey, key), ())
    account = replace(account, passkey_second_at=NOW)
    required = (Factor(FactorKind.PASSKEY, NOW, is_required=True), Factor(FactorKind.SECURITY_KEY, NOW, is_required=True))
    assert account.second_factors == account.factors == required
    assert (required_strength(required), required_strength([passkey, key])) == (Strength.TWO, Strength.ONE)


def test_the_reachable_strength_is_that_of_the_strongest_factor() -> None:
    passkey, key, second = Factor(FactorKind.PASSKEY), Factor(FactorKind.SECURITY_KEY), Factor(FactorKind.SECURITY_KEY, is_required=True)
    reachable = [reachable_strength(factors) for factors in ([], [PASSWORD, key], [PASSWORD, APP], [second], [APP, key, passkey])]
    assert reachable == [Strength.ONE, Strength.ONE, Strength.TWO, Strength.TWO, Strength.PHISHING_RESISTANT]


@table(("user_verified", "strength", "acr"), [(False, Strength.TWO, "mfa"), (True, Strength.PHISHING_RESISTANT, "phr")])
def test_a_passkey_beside_a_password_is_its_second_factor(user_verified: bool, strength: Strength, acr: str) -> None:
    key = Proof(Method.PASSKEY, NOW, user_verified=user_verified, phishing_resistant=True, hardware=True)
    proofs = complete(first_proof("password", NOW), key)
    assert (strength_of(proofs), acr_of(proofs), amr_of(proofs)) == (strength, acr, ["pwd", "hwk", "user", "mfa"])
    assert (first_method_of(proofs), methods_of(proofs), second_of(proofs)) == ("password", ("password", "passkey"), key)
    assert strength_of((key,)) is (strength if user_verified else Strength.NONE), "without user verification it counts only beside another"


def test_protocols_know_the_newest_sign_in_alone() -> None:
    """A passkey and a newer password are not a present sign-in with a passkey. For a few minutes, the passkey is its second factor."""
    passkey = Proof(Method.PASSKEY, NOW - MINUTE, user_verified=True, phishing_resistant=True)
    password, email = first_proof("password", NOW), first_proof("email", NOW - MINUTE)
    kept = renewed((passkey,), (password,), NOW - 5 * MINUTE)
    assert newest_sign_in(kept) == (password, replace(passkey, user_verified=False))
    assert (acr_of(kept), amr_of(kept), proved_at(kept)) == ("mfa", ["pwd", "swk", "user", "mfa"], NOW)
    assert (session_strength(kept), strength_of(kept)) == (Strength.TWO, Strength.PHISHING_RESISTANT), "policies count both"
    assert newest_sign_in((email, *complete(password, TOTP))) == complete(password, TOTP)
    assert newest_sign_in((password, replace(passkey, at=NOW + MINUTE))) == (replace(passkey, at=NOW + MINUTE),)
    assert newest_sign_in(()) == ()


# The minutes from the second factor to the first factor, and whether it counts
AGES = [(-600, True), (0, True), (9, True), (10, True), (11, False), (600, False)]


@table(("minutes", "counts"), AGES)
@table("name", ["password", "email", "websuite", "connection"])
@table("method", [Method.TOTP, Method.BACKUP_CODE, Method.PASSKEY, "verified passkey"])
def test_a_second_factor_counts_beside_a_first_one_that_is_a_few_minutes_newer(
    method: str, name: str, minutes: int, *, counts: bool
) -> None:
    """No claim counts an older second factor, whatever the first factor is."""
    is_verified = method == "verified passkey"
    second = Proof(
        Method.PASSKEY if is_verified else Method(method), NOW - minutes * MINUTE, user_verified=is_verified, phishing_resistant=is_verified
    )
    first = first_proof(name, NOW)
    if is_verified and minutes < 0:  # then the passkey is the newest first factor
        first, second, counts = second, first, False
    proofs = (second, first) if minutes > 0 else (first, second)
    seen = replace(second, user_verified=is_verified and minutes == 0)
    assert newest_sign_in(proofs) == ((first, seen) if counts else (first,))
    two = Strength.PHISHING_RESISTANT if is_verified and minutes <= 0 else Strength.TWO if counts else Strength.ONE
    assert session_strength(proofs) is two
    assert acr_of(proofs) == ("pwd", "mfa", "phr")[two - 1]
    assert ("mfa" in amr_of(proofs)) is (two >= Strength.TWO)
    assert (second_of(proofs), proved_at(proofs)) == (seen if counts else None, first.at)
    assert covers(proofs, [APP]) is (two >= Strength.TWO)


def test_a_reauthentication_keeps_recent_first_factors_by_other_methods() -> None:
    password, email, passkey = (first_proof(name, NOW - 5 * MINUTE) for name in ("password", "email", "passkey"))
    passkey = replace(passkey, user_verified=True, phishing_resistant=True)
    websuite, codehost = first_proof("websuite", NOW), first_proof("codehost", NOW - MINUTE)
    since = NOW - 5 * MINUTE
    assert renewed((password,), (replace(email, at=NOW),), since) == (password, replace(email, at=NOW))
    assert renewed((password, TOTP), complete(first_proof("password", NOW), TOTP), since) == complete(first_proof("password", NOW), TOTP)
    assert renewed((codehost, passkey), (websuite,), since) == (codehost, passkey, websuite), "two identity providers are two methods"
    assert renewed((password, codehost), (websuite,), NOW - 4 * MINUTE) == (codehost, websuite)
    assert renewed((), (websuite,), since) == (websuite,)


def test_a_silent_sign_in_at_a_provider_is_as_old_as_the_last_sign_in_of_the_session() -> None:
    password, silent = first_proof("password", NOW - MINUTE), first_proof("codehost", NOW, is_fresh=False)
    proofs = every_proof(with_silent((password, TOTP), silent))
    assert proofs == (password, TOTP, replace(silent, at=password.at))
    assert (newest_sign_in(proofs), is_fresh(proofs), methods_of(proofs)) == ((password, TOTP), True, ("password", "totp"))
    assert with_silent(proofs, silent) == proofs
    assert with_silent((silent, first_proof("email", NOW + MINUTE)), silent)[1:] == (replace(silent, at=NOW + MINUTE),)


def test_a_silent_sign_in_at_a_connection_makes_neither_the_session_newer_nor_its_proof_longer() -> None:
    asked = Proof(Method.CONNECTION, NOW - 9 * MINUTE, connection=UUID(int=1), org=UUID(int=2), until=NOW + MINUTE)
    silent, password = replace(asked, at=NOW, is_fresh=False, until=None), first_proof("password", NOW - 5 * MINUTE)
    again = (password, replace(asked, vouched_at=NOW))
    assert with_vouching((password, asked), silent) == again
    assert with_vouching(again, replace(silent, until=NOW)) == (password, replace(asked, vouched_at=NOW, until=NOW))
    assert with_vouching((password,), silent) == (password, replace(silent, at=password.at, vouched_at=NOW))
    assert beside_own(again) == (password, replace(asked, at=password.at, vouched_at=NOW)), "with the age of the older one"
    assert beside_own(again[1:]) == again[1:]
    assert beside_own((first_proof("email", NOW), again[1]))[1:] == again[1:]


def test_only_the_newest_second_factor_is_kept() -> None:
    password, email = first_proof("password", NOW - MINUTE), first_proof("email", NOW)
    passkey = Proof(Method.PASSKEY, NOW, user_verified=True, phishing_resistant=True)
    assert with_second(with_second((password, email), TOTP), BACKUP_CODE) == (password, email, BACKUP_CODE)
    assert with_second((password, email, TOTP), passkey) == (password, email, passkey)
    assert with_second((password, passkey), passkey) == (password, passkey)
    assert proved_at(with_second((password,), TOTP)) == password.at, "the sign-in is as old as it was"


@REPEATABLE
@given(OF_SESSION, st.sampled_from([None, ACME, OTHER]))
def test_the_proof_of_a_connection_counts_in_its_organization_alone(proofs: Proofs, org_id: UUID | None) -> None:
    seen, own = seen_in(proofs, org_id, NOW), [proof for proof in proofs if proof.method is not Method.CONNECTION]
    of_connection = [] if org_id is None else [proof for proof in proofs if proof.method is Method.CONNECTION and proof.org == org_id]
    live = [proof for proof in of_connection if proof.until is None or proof.until > NOW]
    has_first = bool(live) or any(not proof.is_second for proof in own)
    assert sorted(map(repr, seen)) == (sorted(map(repr, [*own, *live])) if has_first else [])
    assert [proof for proof in proofs if proof in seen] == list(seen), "in their order"


@REPEATABLE
@given(OF_SESSION)
def test_a_session_is_restricted_until_it_has_a_first_factor_of_the_account(proofs: Proofs) -> None:
    firsts = [proof for proof in proofs if not proof.is_second]
    if any(proof.method is not Method.CONNECTION for proof in firsts):
        assert restriction_of(proofs) is None
        assert in_session(proofs) == seen_in(proofs, None, NOW)
    else:
        assert restriction_of(proofs) == (firsts[-1].org if firsts else None)
        assert seen_in(proofs, None, NOW) == ()


def test_a_proof_of_a_connection_and_those_of_the_account_do_not_replace_each_other() -> None:
    password, old = first_proof("password", NOW - 60 * MINUTE), Proof(Method.CONNECTION, NOW - 60 * MINUTE, connection=OKTA, org=ACME)
    new = replace(old, at=NOW, org=OTHER)
    assert renewed((password, TOTP, old), (new,), NOW - MINUTE) == (password, TOTP, new), "the own proofs keep their time"
    assert renewed((old,), (first_proof("email", NOW),), NOW) == (old, first_proof("email", NOW))
    assert with_second((password, old), TOTP) == (password, old, TOTP)


def test_a_new_sign_in_keeps_the_recent_own_proofs_by_other_methods() -> None:
    """The new session may last longer than the old session, so an older proof ends with the old session."""
    end, later, since, a, b = NOW + MINUTE, NOW + 2 * MINUTE, NOW - 10 * MINUTE, UUID(int=1), UUID(int=2)
    passkey = Proof(Method.PASSKEY, NOW, user_verified=True, phishing_resistant=True)
    of_a, of_b = (Proof(Method.CONNECTION, NOW, connection=each, org=each) for each in (a, b))
    new = (of_a, first_proof("password", NOW))
    expected = (replace(of_b, until=end), replace(of_a, until=later), new[1])
    assert joined((passkey, TOTP, of_a, of_b), end, new, later, since) == (passkey, TOTP, *expected)
    old = tuple(replace(proof, at=NOW - 11 * MINUTE) for proof in (passkey, TOTP))
    assert joined((*old, of_a, of_b), end, new, later, since) == expected
    assert joined((first_proof("password", NOW - MINUTE), *old), end, new[1:], later, since) is None, "the same method is replaced"
    assert joined((*old, of_a), end, (of_b,), later, since) == (*old, replace(of_b, until=later)), "a connection replaces none of them"
    assert joined((of_b, TOTP), end, (of_b,), later, since) == (TOTP, replace(of_b, until=later))
