# Helpers for the walks in this documentation. Load them in the project's directory: . docs/walk.sh
# They need curl and python3, and work in sh, bash and zsh. Set `api` first if the service has another address.

api=${api:-http://localhost:8080}
json='Content-Type: application/json'
walk_mails=${SSO_DATA_DIR:-var}/mail
walk_state=$(mktemp -d) # passwords and access tokens; only you can read it

# get FIELD...: print one field of the JSON on standard input. Example: echo '{"user": {"id": 7}}' | get user id
# If the service answered with an error, print that error on standard error and return 1.
get() {
    python3 -c '
import json, sys

def fail(problem):
    sys.exit(f"get: {problem}")

text, path = sys.stdin.read().strip(), sys.argv[1:]
if not text:
    fail("the answer is empty. Is the service running?")
try:
    answer = value = json.loads(text)
except ValueError:
    fail(f"the answer is not JSON: {text[:300]}")
for field in path:
    try:
        value = value[int(field)] if isinstance(value, list) else value[field]
    except (LookupError, TypeError, ValueError):
        fields = answer if isinstance(answer, dict) else {}
        problem = fields.get("error_description") or fields.get("detail") or fields.get("error")
        code = fields.get("error_code") or fields.get("scimType")
        if not problem:
            problem = "there is no field " + " ".join(path) + f" in the answer: {text[:300]}"
        fail(f"{problem} ({code})" if code else problem)
print(value if isinstance(value, str) else json.dumps(value))' "$@"
}

# account NAME EMAIL PASSWORD: remember how to sign in to an account, under a short name.
account() {
    python3 -c 'import json, sys; print(json.dumps({"email": sys.argv[1], "password": sys.argv[2]}))' "$2" "$3" >"$walk_state/$1.login"
    rm -f "$walk_state/$1.token"
}

# bearer NAME: print the Authorization header of an account.
# Signs in when there is no access token yet, and again when the token is about to expire (by default after 15 minutes).
bearer() {
    walk_until=0
    [ ! -f "$walk_state/$1.token" ] || read -r walk_until walk_token <"$walk_state/$1.token"
    if [ "$(date +%s)" -ge "$walk_until" ]; then
        walk_answer=$(curl -s "$api/api/auth/login" -H "$json" -d @"$walk_state/$1.login")
        walk_token=$(printf %s "$walk_answer" | get access_token) || return
        walk_until=$(($(date +%s) + $(printf %s "$walk_answer" | get expires_in) - 30))
        echo "$walk_until $walk_token" >"$walk_state/$1.token"
    fi
    echo "Authorization: Bearer $walk_token"
}

# mail_code EMAIL: wait until a mail to EMAIL with a 6-digit code is there, at most 30 seconds, and print the newest such code.
mail_code() {
    python3 -c '
import email, email.policy, pathlib, re, sys, time

folder, recipient = sys.argv[1:]
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    for file in sorted(pathlib.Path(folder).glob("*.eml"), reverse=True):
        message = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
        body = message.get_body(("plain",))
        code = body and re.search(r"(?m)^[0-9]{6}\r?$", body.get_content())
        if message["To"] == recipient and code:
            print(code[0].strip())
            sys.exit()
    time.sleep(0.2)
sys.exit(f"mail_code: no mail to {recipient} with a code arrived in {folder} within 30 seconds")' "$walk_mails" "$1"
}

# mail_link EMAIL PATH: wait until a mail to EMAIL with a link to PATH is there, at most 30 seconds, and print the newest such link.
mail_link() {
    python3 -c '
import email, email.policy, pathlib, re, sys, time

folder, recipient, path = sys.argv[1:]
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    for file in sorted(pathlib.Path(folder).glob("*.eml"), reverse=True):
        message = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
        body = message.get_body(("plain",))
        link = body and re.search(r"https?://\S+?" + re.escape(path) + r"\?\S+", body.get_content())
        if message["To"] == recipient and link:
            print(link[0])
            sys.exit()
    time.sleep(0.2)
sys.exit(f"mail_link: no mail to {recipient} with a link to {path} arrived in {folder} within 30 seconds")' "$walk_mails" "$1" "$2"
}
