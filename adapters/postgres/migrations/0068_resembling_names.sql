-- A name without what makes it look different and read the same: case, accents, spaces, punctuation, and letters of other alphabets and
-- digits that look like Latin letters. 'i' and 'l' are one letter, and so are 'rn' and 'm'.
create function canonical_name(name text) returns text language sql immutable parallel safe return
    regexp_replace(replace(replace(translate(lower(translate(normalize(name, NFKD),
        'авсԁеѕһіјкӏмнопрԛтуүхԝАВСЕНІЈКӀМОРЅТУХԚԜαβγεηικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ013457|@$',
        'abcdeshijklmhonpqtyyxwabcehijklmopstyxqwabyenikvoptuxwabezhikmnoptyxoleastlas')),
        'i', 'l'), 'rn', 'm'), 'vv', 'w'),
    '[[:space:][:punct:]\u0300-\u036f\u00ad\u2000-\u2bff\u3000-\u303f\ufeff]', '', 'g');

alter table organizations
    add column canonical_name text not null generated always as (canonical_name(name)) stored,
    add column canonical_slug text not null generated always as (canonical_name(slug)) stored;
create index organizations_by_canonical_name on organizations (canonical_name);
create index organizations_by_canonical_slug on organizations (canonical_slug);
