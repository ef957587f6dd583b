"""Abbreviations that mean one thing here and another there: what stands around them tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor, Reading
from melforge.common.text.english.reading.word_classes import CLOSED

_LOOK_BACK = 30  # characters
_MONTH = r"[A-Z][a-z]{2,8}\.?"
_ABOUT = r"(?:(?:ca?\.|abt\.?|about|circa|bef\.?|before|aft\.?|after)\s?)?"
_DAY = rf"\s{_ABOUT}(?:\d{{1,2}}\s{_MONTH}\s|{_MONTH}\s\d{{1,2}},\s)?"
_YEAR = rf"{_DAY}\d{{3,4}}(?!\d)"
_PLACE_AND_YEAR = r"\s[A-Z][A-Za-z]+(?:,\s[A-Z][\w.]+)?,\s(?:1\d|20)\d\d(?!\d)"
_SURE_YEAR = rf"{_DAY}(?:1\d|20)\d\d(?!\d|,\d)"
_BEGUN = r"[(;,]\s?"
_CENTURY = r"(?<!\w)\d{1,2}(?:st|nd|rd|th|d)[\s-]"
_NUMBER = r":?\s?[+(]?\d"
_BEATEN = r"\s[A-Z][A-Za-z][\w' -]{0,30},?\s(?:\d{1,3}[-–]\d|(?:T?KO|UD|SD)\b)"
_TRAVEL = (
    r"\s?(?:[A-Z]{3}\b|(?:Gate|Terminal|Platform)\b"
    r"|\d|[A-Z][a-z]+\s\d{1,2}:\d\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\b)"
)
_COUNTIES = (
    r"\s(?:Antrim|Armagh|Carlow|Cavan|Clare|Cork|Derry|Donegal|Down|Dublin|Durham|Fermanagh|Galway|Kerry|Kildare"
    r"|Kilkenny|Laois|Leitrim|Limerick|Longford|Louth|Mayo|Meath|Monaghan|Offaly|Roscommon|Sligo|Tipperary|Tyrone"
    r"|Waterford|Westmeath|Wexford|Wicklow)\b"
)
_TURNED = r"\b(?:[Tt]urn|[Kk]eep|[Bb]ear|[Tt]ake|[Oo]n (?:yo)?ur|\d(?:st|nd|rd|th))\s"
_STATES = {key.title() for key, name in tables.ABBREVIATIONS.items() if name in tables.STATES.values()}
_CUT = r"\s[A-Z][a-z]*\."  # another name cut short
_DOSED = r"(?:\bm?c?g|\dm?c?g|\bmL|\btabs?|\bcaps?|\bpo|\bPO|\bbid|\btid|\bqid|\btablets?|\bcapsules?)\.?\s"
_STATES |= {*tables.STATES_WITH_STOP, *tables.STATES_WITH_STOP.values(), *tables.STATES}
_STATE = rf",\s(?:{'|'.join(sorted(_STATES))})\b"
_LIMB = r"\s(?:side|wrist|knee|hand|arm|leg|foot|eye|ear|hip|ankle|shoulder|elbow|lung|breast|thigh|calf)\b"
_ONTO = (
    r"\s(?:on|onto|at|@)\s(?:[A-Z][a-z]|[A-Z]{1,3}\s\d|\d+(?:st|nd|rd|th)\b"
    r"|(?:the\s)?(?:\w+\s)?(?:light|stop|corner|fork)\b)"
)
_LAW = r"\s(?:(?:[A-Z][a-z]*\.?|&)\s){0,4}(?:Codes?|Laws?|Stats?|Const|Evid|Regs?)\b|\s(?:Ct|App|Sup|Super)\."
_OF_PATIENTS = (
    r"\s(?:c/o\b|w/|with\b|is|was|has|had|seen|given|denied|presented|reported"
    r"|states|denies|reports|presents|complains)\b"
)

# Words (with a capital: only so written), what stands before, what behind, what is said. The first row that
# fits counts. Behind a word stands its full stop, or with a star perhaps none.
_ROWS = (
    ("b", _BEGUN, r"\s\d", "born"),
    ("b", "", r"\s\d{1,2}/\d{1,2}/\d\d", "born"),
    ("b B", "^", _YEAR, "born"),
    ("b", "", _SURE_YEAR, "born"),
    ("d", _BEGUN, r"\s\d", "died"),
    ("d", "^", _YEAR, "died"),
    ("b B", rf"^|{_BEGUN}", _PLACE_AND_YEAR, "born"),
    ("d", rf"^|{_BEGUN}", _PLACE_AND_YEAR, "died"),
    ("d", "", _SURE_YEAR, "died"),
    ("m", _BEGUN, r"\s\d", "married"),
    ("m", rf"^|{_BEGUN}", r"\s\(\d\)", "married"),
    ("m", "^", _YEAR, "married"),
    ("r", "^", _YEAR, "reigned"),
    ("r", _BEGUN, r"\s\d", "reigned"),
    ("d", r"[a-z]\s", _BEATEN, "defeated"),
    ("def* bt*", r"\w\s", _BEATEN, "beat"),
    ("L*", _TURNED, "", "left"),
    ("R*", _TURNED, "", "right"),
    ("L*", "", r"\sonto\b", "left"),
    ("int", "", r"\s(?:temp|pressure)\b", "internal"),
    ("c", _CENTURY, "", "century"),
    ("c", "", r"\s?\d", "circa"),
    ("p", "", r"\s?(?:\d|[ivxlc]+\b)", "page"),
    ("n", r"(?:\b[Ss]ee|\b[Ss]upra|\b[Ii]nfra|\bat|&|\d,?)\s", r"\s?\d", "note"),
    ("v", r"\d,?\s", r"\s?\d", "verse"),
    ("v", "", r"\s?\S", "versus"),
    ("v*", r"[\d%)]\s", r"\s[\d(]", "versus"),
    ("ch*", r"\b(?:TV|[Tt]elevision|[Ww]atch)\b.{0,14}|[ap]\.?m\.?(?:,|\son)\s", r"\s?\d", "channel"),
    ("dev*", r"\b(?:[JS]r|[Ww]eb|[Gg]ame|[Ll]ead|[Aa]pp|[Ss]tack|[Jj]unior|[Ss]enior)\.?\s", "", "developer"),
    (
        "Ch",
        r"\b(?:Baptist|Methodist|Lutheran|Presbyterian|Catholic|Episcopal|Christian|Community)\s",
        "",
        "Church",
    ),
    (
        "no",
        r"\b(?:[Mm]y|[Yy]our|[Hh]is|[Hh]er|[Tt]heir|[Oo]ur|[Rr]ef|[Ii]tem|[Ff]lat|[Oo]rder|[Aa]cct|[Tt]el)\.?\s",
        r"\s\S",
        "number",
    ),
    ("hwy*", r"\d\s", "", "highway"),
    ("ff*", r"\d\s?", "", "and following"),
    ("amend", r"\d(?:st|nd|rd|th)\s", "", "amendment"),
    ("bet*", r"\b(?:St|Ave|Blvd|Rd|Street|Avenue)\.?\s", "", "between"),
    ("Cat", "", r"\s(?:[Nn]o\b|#)", "catalog"),
    ("rm*", "", r"\s\d{2,4}\b", "room"),
    ("resp", "", r"\sto\b", "responding"),
    (
        "reg",
        "",
        r"\s(?:opens|closes|ends|begins|starts|fees?|deadline|due|required|form)\b|\s[A-Z]{1,2}\d{2}\s?[A-Z]{3}\b",
        "registration",
    ),
    ("est", r"\b[A-Z]{3}\s", "", "estimate"),
    ("est", "", r"\sof\b", "estimate"),
    ("adv*", r"\b(?:[Ww]ind|[Ff]lood|[Hh]eat|[Ff]rost|[Ww]inter|[Ss]torm|[Tt]ravel)\s", "", "advisory"),
    ("pred", r"%\s", "", "predicted"),
    ("exp", r"%\s", "", "expected"),
    ("rec", "", r":\s?\d", "recommended"),
    ("arr*", "", _TRAVEL, "arrives"),
    ("dir", "", r"\sby\b", "directed"),
    ("prod", "", r"\sby\b", "produced"),
    ("ed", "", r"\sby\b", "edited"),
    ("arr", "", r"\sby\b", "arranged"),
    ("comp", "", r"\sby\s[A-Z]", "composed"),
    ("ed", r"\b(?:[Ll]td\.?|[Ll]imited|[Ss]pecial|\d(?:st|nd|rd|th))\s", "", "edition"),
    ("ct*", r"\d[\s-]", r"\s(?:gold|diamonds?|sapphire|ruby|emerald|white|yellow|rose|tw\b)", "carat"),
    ("ct*", r"\d[\s-]", "", "count"),
    ("exp", "", r":\s[A-Z]", "experience"),
    ("Gr", "", r"\s(?:K\b|\d)", "grade"),
    ("min", r"(?:^|[:;,(]\s)", r"\s[A-Z][a-z]+", "minimum"),
    ("est", r"\b(?:19|20)\d\d\s", r"\)", "estimate"),
    ("Sch", r"\b(?:Elem|High|Middle|[JS]r|Prep|Primary|Law|Med)\.?\s", "", "School"),
    ("Ps", "", r"\s\d", "Psalm"),
    ("Tr", "", r"\s\d", "track"),
    ("yrs*", "", r"\s(?:faithfully|truly|sincerely|ever|affectionately|respectfully|obediently)\b", "yours"),
    ("Ex", "", r"\s[A-Z](?![\w'.])", "Exhibit"),
    ("P", "", r"\d", "page"),
    ("pres", r"\d\s?[-–]\s?", "", "present"),
    ("bot*", "", r"\s(?:of\s(?:the\s)?)?\d", "bottom"),
    ("reg*", "", r"\s(?:price|retail)\b", "regular"),
    ("s", r"\bAct(?:\s\d{4})?,?\s|\d{4}\sc\.?\s\d+,?\s", r"\s?\d", "section"),
    ("s", "", r"\s?\d+[A-Z]?\(", "section"),
    ("s", r"\b(?:[Uu]nder|[Bb]y|[Ii]n|[Ss]ee|[Pp]er)\s|\(", r"\s?\d", "section"),
    ("lv*", "", r"\s\d{1,2}:\d\d", "leaves"),
    ("ret*", "", r"\s\d{1,2}:\d\d", "returns"),
    (
        "pt*",
        r"\b(?:[Ss]ave|[Dd]ew|[Mm]atch|[Ss]et|[Bb]reak|[Mm]elting|[Bb]oiling|[Ff]ocal|[Mm]eeting|[Mm]tg\.?|[Ss]tarting)\s",
        "",
        "point",
    ),
    ("bap bapt", "", r"\s(?:\d|[A-Z][a-z]{2,8}\s\d)", "baptized"),
    ("vol", "", r"\sof\b", "volume"),
    ("occ", r"\b(?:dbl|double|sgl|single|max)\.?\s", "", "occupancy"),
    ("fl", _CENTURY, "", "Floor"),
    ("fl", "", r"\s(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)", "flowers"),
    ("fl", "", _YEAR, "flourished"),
    ("gen", "", r"\s?\d", "generation"),
    ("press", "", r"\s\d+(?:\.\d+)?\s?(?:[kM]?Pa|atm|psi|bar)\b", "pressure"),
    ("col", "", r"\s?(?:\d|[A-Z](?![\w.']))", "column"),
    ("vis", "", r"\s\d", "visibility"),
    ("incl", r"\b(?:is|are|was|were|be|been)\s", "", "included"),
    ("incl", r"[A-Za-z]\.?\s", r"[),;]|$|\s(?:but|and|in|w/|with)\b", "included"),
    ("Utd*", "", "", "United"),
    ("inc*", r"\(", r"\s", "including"),
    ("sp spp", r"\b[A-Z][a-z]{3,}\s|\d\s", "", "species"),
    ("adv*", r"[$£€]\d+\s", "", "advance"),
    ("no", "", r"\s(?:of\b(?!\scourse))|:\s?\S", "number"),
    ("no", r"(?<!\bis)(?<!\bwas)(?<!\bsaid)(?<!\bsays)\s", r"\sis\b", "number"),
    ("nos", "", r"\sof\b(?!\scourse)|:\s?\d", "numbers"),
    ("nr", "", r"\s[a-z]", "near"),
    ("nr*", "", r"\s(?:[A-Z]|\d+(?:st|nd|rd|th)\b)", "near"),
    ("dep*", r"(?:\+|\bplus|[$£€]\d+)\s", "", "deposit"),
    ("dep*", "", _TRAVEL, "departs"),
    ("inn*", r"\d\s", "", "innings"),
    ("Rd* rd*", r"(?:^|(?<!Co)[.;:,(]\s|\b(?:in|by|K\.?O\.?|vs\.?)\s)", r"\s\d", "round"),
    ("rnd*", "", r":?\s\d", "round"),
    ("st*", r"\b(?:next|last|each|first|same)\s", r"\s?(?:[,;.)]|$)", "stitch"),
    ("hse*", "", "", "house"),
    ("det*", "", r"\s(?:house|hse|home|garage|bungalow|cottage|villa|property)\b", "detached"),
    ("elev*", "", r"\s(?:bldg|building)", "elevator"),
    ("elev", "", r"\s(?:is|was|out|not|works)\b", "elevator"),
    ("elev", r"\b(?:no|w/o|walk-?up,|and)\s", "", "elevator"),
    ("Sch", "", r"\s(?:[A-Z]{1,2}|K-1)(?![\w.'])", "schedule"),
    ("Enc* Encl*", r"^", r":|\s[(:]", "enclosed"),
    ("fx*", "", r"\s(?:of\b|[LR]\b)", "fracture"),
    ("util", r"\bincl?\.?\s|\+\s|\b(?:plus|all|including)\s", "", "utilities"),
    ("ur*", "", r"\s[a-z]", "your"),
    (
        "dep*",
        "",
        r"\s[A-Z][a-z]+(?:\s[A-Z][a-z]+\.?)?,?\s\d{1,2}[:.]\d\d|\s(?:hourly|daily|every)\b",
        "departs",
    ),
    ("rms*", "", r"\s\d{2,4}\b", "rooms"),
    ("int", r"(?:\bplus|\+|&|\bw/)\s", "", "interest"),
    ("app", "", r"\sfee", "application"),
    ("Sta", r"(?:^|,\s|\b(?:[a-z]+|Via|via)\s)", r"\s[A-Z][a-z]", "Santa"),
    ("Ord", "", r"\s(?:[Nn]o\b|\d)", "ordinance"),
    ("neg*", r"\w\s", r"\s?(?:$|[,;)]|x\s?\d)", "negative"),
    ("Ind", "", r"\sEst\b", "Industrial"),
    ("Est", r"\b(?:Ind\.|Industrial|Trading|Housing|Business)\s", "", "Estate"),
    ("Sup", "", r"\sCt\b", "Supreme"),
    ("Sec", "", r"\s(?:of\b|[A-Z][a-z]{2,}\b(?!\.))", "Secretary"),
    ("Min", r"\b(?:Foreign|Prime|Finance|Defen[cs]e|Interior|Health|Trade|Deputy|Justice)\s", "", "Minister"),
    (
        "yr*",
        r"(?:^|\b(?:to|of|for|in|on|re|from|with|that|at|about|and|got|need|send)\s|[.:;!?,]\s)",
        r"\s(?!built\b|old\b|end\b|round\b)[a-z]{3,}",
        "your",
    ),
    ("cat", "", r"\s\d", "category"),
    ("fr", r"\bin\s", r"\s\d", "frame"),
    ("L", r"\bPub\.\s", "", "Law"),
    ("R", r"\bFed\.\s", r"\s(?:Civ|Crim|App|Evid)\.", "Rule"),
    ("P", r"\b(?:Civ|Crim|App)\.\s", "", "Procedure"),
    ("lit", "", r"\s[a-h](?![\w.])", "letter"),
    ("Reg", "", r"\s\(E[UC]\)", "Regulation"),
    ("pl", "", r"\s?\d", "platform"),
    ("cl", r"(?:NMFC|[Ff]reight|lbs?\.?),?\s", r"\s\d", "class"),
    ("Int", r"\bthe\s", "", "Interior"),
    ("trans*", r"\b(?:[Aa]uto|[Mm]anual|spd|speed)\.?\s", "", "transmission"),
    ("ch chap", "", r"\s\d{1,2}\s?(?:[-–&]|and\b)\s?\d", "chapters"),
    ("vol", "", r"\s\d{1,2}\s?(?:[-–&]|and\b)\s?\d", "volumes"),
    ("supp", "", r"\s\d", "supplement"),
    ("L*", r"(?:^|[,;]\s|\bthen\s|\band\s)", _ONTO, "left"),
    ("R*", r"(?:^|[,;]\s|\bthen\s|\band\s)", _ONTO, "right"),
    ("L*", "", _LIMB, "left"),
    ("R*", "", _LIMB, "right"),
    ("rev", r"\b[Pp]l(?:ea)?s[.e]?\s", "", "review"),
    (
        "temp",
        "",
        r"\s(?:admin|worker|asst|assistant|job|position|agency|staff|help|housing|file)",
        "temporary",
    ),
    ("exp", "", r"\s(?:rpts?|reports?|acct)\b", "expense"),
    ("treas", "", r"\s(?:yld|yield|bond|bill|note|Dept|Sec)", "Treasury"),
    ("adm", "", r":?\s(?:[$£€\d]|free)", "admission"),
    ("adm", "", r"\s(?:w/|with|to|for)", "admitted"),
    ("sat sats*", "", r":?\s\d{2,3}\s?%", "saturation"),
    ("aff", "", r"\s(?:area|side|eye|limb|skin)", "affected"),
    ("disc", r"%\s", "", "discount"),
    ("disc", "", r"\s(?:if|when|use|after)\b", "discontinue"),
    (
        "Pl Def",
        "",
        r"\s(?:filed|moved|argue|claim|allege|contend|admit|denie|assert|cite|seek|appeal|has\b|was\b|is\b)",
        "",
    ),
    ("Resp", r"'s\s|\b(?:[Ii]ts|[Tt]he|[Hh]is|[Hh]er|[Tt]heir)\s", "", "response"),
    ("prop", "", r"\s(?:tax|line|mgmt|damage|owner|val|man|dev)", "property"),
    ("comm", "", r"\sexp", "commission"),
    ("bur", "", r"\sof\b", "Bureau"),
    ("ext int", "", r"\s(?:wall|door|paint|finish|light|siding|trim|latex|design|dec|stairs|doors)", ""),
    ("Trans", "", rf"{_CUT}|\sR\.", "Transactions of the"),
    ("Coll", "", r"\s(?:Works|Poems|Papers|Ed)", "collected"),
    ("Cl", _CENTURY, "", "Class"),
    ("blk*", "", r"\s(?:hair|leather|int|paint|vinyl|(?:19|20)\d\d)", "black"),
    ("no", r"\b(?:[Ll]ic|[Aa]cct|[Ss]erial|[Pp]hone|[Tt]el|ID|[Ii]nv)\.?\s", "", "number"),
    ("no", r"\b(?i:passport|model|part|case|file|policy|account|reg|booking)\.?\s", "", "number"),
    ("sec", "", r"\sdep", "security"),
    ("dep", r"\bsec\.?\s", "", "deposit"),
    ("Rec", "", r"\s(?:Ctr|Cent|Hall|Rm|Room|Area|Dep)", "recreation"),
    ("chg*", "", r"\s(?:eff|in|of|to)\b", "change"),
    ("serv", r"(?:\b[Pp]er|\d)\s", "", "serving"),
    ("mi", r"\b[Uu]nlim\w*\.?\s", "", "miles"),
    ("q", "", r"\s?\d", "question"),
    ("bk", "", r"\s[a-z]", "book"),
    ("prs", r"\d\s", "", "pairs"),
    ("sp spd", r"\d[-\s]", "", "speed"),
    ("vol*", "", r"\s(?:ctrl|control|up\b|down\b|level|lvl|knob|btn)", "volume"),
    ("Dx* Tx* Rx*", "", r":\s", ""),
    ("Ct", r"\b(?:S|Sup|Dist|Super|Cir)\.\s", "", "Court"),
    ("Ct", "", r"\s(?:of\b|App|Cl)", "Court"),
    ("App", r"\b(?:Ct\.|Court) of\s", "", "Appeals"),
    ("App", r"\bCt\.\s", "", "of Appeals"),
    ("Stat", "", r"\s§", "Statutes"),
    ("Prof", r"&\s", r"\sCode", "Professions"),
    ("Ann", r"\b(?:Code|Laws?|Stat\.)\s", "", "annotated"),
    ("cert", "", r"\s(?:den|gran)", "certiorari"),
    ("bx* cs rl rls*", r"\d\s", "", ""),
    ("tel*", "", _NUMBER, "telephone"),
    ("ext*", "", _NUMBER, "extension"),
    ("wt*", "", _NUMBER, "weight"),
    ("ht*", "", _NUMBER, "height"),
    ("mag*", "", rf"{_NUMBER}|\s[-−]\d", "magnitude"),
    ("Dec*", "", r":?\s[-−+]\d", "declination"),
    ("dist*", "", r":?\s[\d.,]+\s?(?:[kM]?pc|ly|AU|[kc]?m|mi|ft|nm|yds?)\b", "distance"),
    ("cr*", r"\d-", "", "credit"),
    ("cr*", r"\d\s", r"(?:[,;)]|$|\s[a-z])", "credits"),
    ("trk*", "", r"\s?(?:#|no\b)", "tracking"),
    ("Ed", r"\bof\s", "", "Education"),
    ("def", r"\b[Tt]he\s", "", "defendant"),
    ("Ct", "", r"\s[IVX]+\b", "count"),
    (" ".join(tables.STATES_WITH_STOP), "", _LAW, ""),
    ("Cts", "", r"\s[\dIVX]", "counts"),
    ("Mons Sats Fris", r"\b(?:[Cc]losed|[Oo]pen|[Oo]n|except|and)\s|&\s", "", ""),
    ("Suns", r"\b(?:[Cc]losed|[Oo]pen|[Oo]n|except)\s", "", "Sundays"),
    ("sec*", r"(?:^|[^\d\s]\s)", r"\s\d{3}\b|\s\d+[A-Z.]", "section"),
    ("Sec*", r"(?:^|[^\d\s]\s)", r"\s\d", "section"),
    ("inv*", "", r"\s?(?:#|[Nn]o\b|[Nn]umber|\d)", "invoice"),
    ("min", r"(?:^|[.;:]\s|\bprev\.\s|[Aa]pprove[ds]?\s|\bthe\s)", r"\sof\s(?:the\b|\d)", "minutes"),
    ("sq*", "", r"\s[Ff]t\b", "square"),
    ("ft*", r"\b[Ss]q\.?\s", "", "feet"),
    ("pt", r"\ba\s", "", "point"),
    ("pt pts", "", r"\s?\d(?!\d*\.\d)", "part"),
    ("ph*", r"(?<!\w)[13][-\s]?", "", "phase"),
    ("conc", "", r"\s(?:slab|block|mix|wall|floor|pad)", "concrete"),
    ("ref", "", r"\sno\b", "reference"),
    ("mtg*", "", r"\s(?:rates?\b|\d+\.\d)", "mortgage"),
    ("ep*", "", r"\s?\d", "episode"),
    ("Gm*", "", r"\s\d", "game"),
    ("mo", r"\b(?:1st\sof|per|each|every|last|this|next)\s", "", "month"),
    ("sz*", "", rf"{_NUMBER}|\s[SMLX]{{1,3}}\b", "size"),
    ("grp*", "", _NUMBER, "group"),
    ("lv*", "", _NUMBER, "level"),
    ("vit*", "", r"\s[A-K]\d{0,2}(?!\w)", "vitamin"),
    ("tab", r"(?:\d|½|\bone|m?c?g)\s", "", "tablet"),
    ("cap", r"(?:\d|\bone|m?c?g)\s", r"(?!\s(?:ex|exp)\b)", "capsule"),
    ("tabs*", r"\dm?c?g\s|\d\s?m?c?g\s", "", "tablets"),
    ("App", "", r"\s?(?:\d+|[A-Z])(?!\w)", "Appendix"),
    ("Cir", _CENTURY, "", "Circuit"),
    ("ed", rf"{_CENTURY}|\brev\.\s", "", "edition"),
    ("pp*", r"(?:^|[^$£€\d.,])\d{1,4}\s", "", "pages"),
    ("appl", "", r"\s[Nn]o\b", "application"),
    ("rev", "", r"\s(?:ed|edn)\b", "revised"),
    ("rev", r"\b[Qq]tr?ly\.?\s|\b[Qq]uarterly\s", "", "revenue"),
    ("Reg", "", r"\s(?:Dir|Mgr|Sales|V\.?P|Off|Man)", "regional"),
    ("Adm", "", r"\s(?:[Aa]ss|[Oo]ff|[Ss]ec|Serv|Svc|Dir|Mgr|Law|[Bb]ldg)", "administrative"),
    ("comm*", "", r":?\s[$£€]", "commission"),
    ("rec", r"\b[Aa]ccts?\.?\s", "", "receivable"),
    ("pay", r"\b[Aa]ccts?\.?\s", "", "payable"),
    ("rec", r"\bof\s|\bmed\.?\s", "", "record"),
    ("dep*", "", r"\s(?:&|and)\samort", "depreciation"),
    ("dep*", "", r"\s(?:refund|paid|due|req|slip|of\s[$£€])", "deposit"),
    ("cap", "", r"\s(?:ex|exp|gains?|rate)\b", "capital"),
    ("ex", r"\bcap\.?\s", "", "expenditure"),
    ("abd*", "", r"\s(?:pain|dist|mass|tender|surg|exam|CT|x-?ray|cramp|wall|bloat)", "abdominal"),
    ("po bid tid qid prn qd qhs po* bid* tid* qid* prn* qd* qhs*", _DOSED, "", ""),
    ("disp*", "", r":?\s(?:#|\d)", "dispense"),
    ("reg", r"\d\s(?:(?:&|and)\s)?", "", "regular"),
    ("reg", "", r"\s[$£€]", "regular"),
    ("ext", "", r"\s(?:w/o|without|warm|no\b|w/)", "extremities"),
    ("inj", "", r"\s(?:\d|IM\b|IV\b|SC\b)", "inject"),
    ("inj", r"\b(?:a|knee|ankle|head|neck|back|leg|arm|shoulder|groin|hip)\s", "", "injury"),
    ("inj", r"(?:\bw/|\bno|\bminor|\bwith|\d)\s", "", "injuries"),
    ("Pl", "", "'s\\b", "Plaintiff"),
    ("Def", "", "'s\\b|'|\\s(?:Mot|Br|Ex)", "Defendant"),
    ("J", r"(?:^|[.;,]\s)", rf"\sAm\.(?:{_CUT}){{1,5}}", "Journal of the"),
    ("J", r"(?:^|[.;,]\s)", rf"(?:{_CUT}){{1,5}}(?:,?\s[\d(]|[A-Z]\b)", "Journal of"),
    ("Am", "", rf"{_CUT}|\sJ\b", "American"),
    ("gr", "", r"\s(?:wt|weight|tons?|profit|margin|rev|inc)", "gross"),
    ("alt", "", r"\s(?:P/N|part|[Rr]oute|[Rr]te|[Pp]hone|tel|contact|e-?mail|date|spelling)", "alternate"),
    ("conc*", "", r":?\s[\d.]", "concentration"),
    ("resp", r"\b(?:[Ff]req\.?|[Ff]requency)\s", "", "response"),
    ("lit", "", r":?\s\d", "literature"),
    ("app", r"(?:[&,;(]|\band|\b[Ss]ee|\bin)\s", r"\s(?:\d|[A-Z](?!\w))", "appendix"),
    ("ln", r"(?:^|[,;(]\s)", r"\s\d", "line"),
    ("lns", r"\d\s", "", "lanes"),
    ("acc*", r"\b(?:[Vv]eh\.?|[Tt]raffic|[Cc]ar|[Mm]otor)\s", "", "accident"),
    ("Inf", "", r"\s(?:Reg|Div|Bri|Bde|Bn|Bat)", "Infantry"),
    ("Inf Plt Cav Arty*", _CENTURY, "", ""),
    ("arr*", "", r"\s[A-Z][a-z]+(?:\s[A-Z][a-z]+\.?)?,?\s\d", "arrives"),
    ("Is", r"[A-Z][a-z]+\s", r"\s\d|,", "Island"),
    ("hi*", r"(?:^|[,;.:]|\b[Tt]emps?)\s?", r":?\s-?\d{1,3}(?:\s?°|[FC]\b|\s?/|[,;]\s?[Ll]o)", "high"),
    ("lo*", r"(?:[,;.:]|/)\s?", r":?\s-?\d{1,3}(?:\s?°|[FC]\b|[,;.]|$)", "low"),
    ("sts*", r"\d\s", "", "stitches"),
    ("plt* plts*", "", r":?\s\d{2,3}[Kk]?\b", "platelets"),
    ("apt", "", r"[,;:)]|\s(?:for|to|w/|avail|near|bldg)\b", "apartment"),
    ("rm", r"\b(?:[Ll]vg?|[Dd]in|[Bb]ed|[Ff]am|[Rr]ec)\.?\s", "", "room"),
    ("rev", "", r"\s(?:\d|[A-Z](?![\w.]))", "revision"),
    ("rev*", r"\b(?:[Nn]et|[Gg]ross|[Tt]otal|[Aa]nnual|[Aa]d|[Ss]ales|FY\s?'?\d*|Q[1-4])\s", "", "revenue"),
    ("rev*", "", r"\s(?:(?:up|down|rose|fell|grew)\s\d|[$£€]|[+-][\d.]+%)", "revenue"),
    ("rev", r"(?:^|[a-z]\s)", r"\s(?!said|is\b|was|and\b)[a-z]{3}", "revised"),
    ("adj", "", r"\s(?:at\s)?\d{1,2}:\d\d", "adjourned"),
    ("est", "", r":?\s(?:ca?\.\s)?(?:1\d|20)\d\d(?!\d)|\s(?:in|by)\b", "established"),
    ("est", r"[$£€][\d.]{1,9}[bBmMkK]?\s", "", "estimated"),
    ("req", "", r"\s#", "requisition"),
    ("rep", "", r"\s(?:rows?|rnds?|rounds?|steps?|from|until)\b", "repeat"),
    ("Rep", "", r"\s\d", "Republican"),
    ("Rep", "", r"\sof\b", "Republic"),
    ("Co", "", _COUNTIES, "County"),
    ("Co", r"(?:^|,\s?|\b(?:in|of|from|near|to)\s)[A-Z][a-z]+\s", _STATE, "County"),
    ("min*", r"\b[A-G][#♭♯]\s", "", "minor"),
    ("maj*", r"\b[A-G][#♭♯]?\s", "", "major"),
    ("min", r"\b(?:[A-G][#b♭♯]?|\bflat|\bsharp)\s", "", "minor"),
    ("Pt*", "", _OF_PATIENTS, "patient"),
    (
        "exp*",
        r"(?:\byrs?'?\.?|\byears?'?|\bmonths|\bhrs|\bwork|\bno|\bmy|\byour|\bhis|\bher|\btheir|\+)\s",
        "",
        "experience",
    ),
    ("exp", "", r"\s(?:w/|with\b|in\b|as\b|req|pref|need|nec)", "experience"),
    ("exp", "", r"\s(?:back|decay|growth|func|smooth)", "exponential"),
    ("Res", "", r"\s(?:[Nn]o\b|\d{1,3}\b)", "Resolution"),
    ("Res", r"(?:U\.?N\.?|[HS]\.|House|Senate|Council)\s", r"\s\d", "Resolution"),
    ("Int", r"[a-z]\.\s", "", "International"),
    ("att*", "", r":?\s\d{1,3},\d{3}", "attendance"),
    ("Fl", "", r"\s(?:plan|area|sp)", "floor"),
    ("din", "", r"\s[Rr]m\b", "dining"),
    ("fol", "", r"\s\d", "folio"),
    ("seq", r"\bet\s", "", "seq"),
    ("Bd", "", r"\sof\b", "Board"),
    ("op", "", r"\s(?:inc\b|income|ex\b|profit|margin|cash|cost)", "operating"),
    ("inc", r"\b(?:[Oo]p|[Nn]et|[Ii]nt|[Gg]ross|[Oo]per)\.?\s", "", "income"),
    ("div*", "", r"\s(?:[$£€]|yld|yield|payable|paid|declared|per\s)", "dividend"),
    ("div*", r"\bex-", "", "dividend"),
    ("ex", "", r"\s\d{1,2}[a-z]?,\s\d", "exercises"),
    ("ex", "", r"\s\d{1,2}[a-z]?\s(?:on|p\.|pp\.)", "exercise"),
    ("dist*", "", r"\s(?:list|cent(?:er|re)|ctr|channel|warehouse)\b", "distribution"),
    ("App", r"[A-Z][a-z]*\.\s", r"\s(?:[2-9](?:d|th)|Div|Ct)\b", "Appellate"),
    ("var", "", r"\s\d{1,2}(?!\d|\.\d)", "variation"),
    ("cor", r"\b[12]\s", r"\s\d", "Corinthians"),
    ("cor", "", r"\s\d+(?:\.\d+)?(?!\d)", "corollary"),
    ("pub publ", "", r"\s(?:in\s)?(?:1[5-9]|20)\d\d", "published"),
    ("Ed", "", r"\s[Nn]otes?\b", "editor's"),
    ("gr", "", r"\s(?:V|[IV]{2,4})\b", "grade"),
    ("pen", r"\(", r"\)", "penalty"),
    ("pen*", r"\d['’′] ?\(", r"\)", "penalty"),
    ("min", r"\b(?:hr|hour|day|wk|week|mo|month|yr|year|night)\.?\s", r"\s?(?:$|[,;)])", "minimum"),
    ("sched", "", r"\s(?:\d{1,2}/\d|for\b|on\b|at\b)", "scheduled"),
    ("hr* wk*", rf"{_CENTURY}|\b(?:each|every|last|next)\s", "", ""),
    ("l", r"\b(?:on|at|see|in)\s", r"\s\d", "line"),
    ("ll", r"\b(?:on|at|see|in)\s", r"\s\d", "lines"),
    ("fin*", "", r"\s(?:bsmt|basement|attic)\b", "finished"),
    ("Proc", "", r"\s(?:[A-Z]{2}|of\b|[A-Z][a-z]*\.|\d+(?:st|nd|rd|th)\b)", "Proceedings"),
    ("Int", "", r"\s(?:Conf|Symp|Joint|Cong|J\b|Work|Mtg|Meet|Airport)", "International"),
    ("Ind", r"\(", r"\)", "independent"),
    ("term", "", r"\s(?:[A-E]|\d)(?![\w.])", "terminal"),
    ("ev*", "", r"\s\d{1,3}\s?(?:min|hrs?\b|h\b|days|wks)", "every"),
    ("rad", "", r"\sto\b", "radiating"),
    ("chgs*", r"\b(?:ST|no|skin)\s", "", "changes"),
    ("compl", "", r"\s(?:[¶§(]|at\b)", "complaint"),
    ("Summ", "", r"\sJ\b", "summary"),
    ("J j", r"\b[Ss]umm\.\s", "", "judgment"),
    ("pty*", "", r"\sof\b", "party"),
    ("pty*", "", r"\sLtd\b", "proprietary"),
    ("beg", "", r"\s(?:at|on|in)\b", "beginning"),
    ("excl", r"\b(?:is|are|was|were|be|been)\s", "", "excluded"),
    ("prob", "", r"\s\d", "problem"),
    ("probs", "", r"\s\d", "problems"),
    ("Biol", r"\bof\s", "", "Biology"),
    ("conc*", r"[£€]\d+\s", "", "concessions"),
    ("cont", r"(?:^|[.;]\s)", r"\s[a-z]", "continue"),
    ("Const", r"\bthe\s", "", "Constitution"),
    ("const", r"[a-z]\s", "", "constant"),
    ("chr*", "", r"\s?(?:\d|[XY]\b)", "chromosome"),
    ("exp", r"[$£€][\d.]+\s", "", "expected"),
    ("Chem", r"\b(?:Biol|Org|Inorg|Phys|Anal|Med|Mater|Appl)\.\s", "", "Chemistry"),
    ("fin", r"%\s", "", "financing"),
    ("gr*", "", r"\s(?:K|\d{1,2})\s?[-–&]\s?\d", "grades"),
    ("calc", "", r"\s(?:AB|BC|I{1,3})\b", "calculus"),
    ("alc", r"\b(?:avoid|no)\s|%\s", "", "alcohol"),
    ("Art", "", r"\sI(?:,|\s§|\sof\b)", "article"),
    ("eq", r"\d\s?W\s|\bCO2\s", "", "equivalent"),
    ("acc", "", r":?\s\d{1,2}(?:\.\d+)?\s?%", "accuracy"),
    ("Eng", "", r"\s(?:Lit|Lang|Dept)", "English"),
    ("Lit", r"\b(?:Eng|English|Am|Amer|Comp|World|Lat|Fr)\.?\s", "", "literature"),
    ("Lang", r"(?:&|\band|\bEng\.?)\s", "", "language"),
    ("alt*", "", r"\s(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|wks?\b|weeks|days|weekends)", "alternate"),
    ("comb", r"\bmpg\s", "", "combined"),
    ("reg", r"\b[A-Z]{2,4}\s", "", "registered"),
    ("sl*", "", r"\sst\b", "slip"),
    ("st*", r"\bsl\s", "", "stitch"),
    ("eve", r"(?:['’]|\b(?:Mon|Tues?|Wed|Thurs?|Fri|Sat|Sun)\.?)\s", "", "evening"),
    ("Soc", r"\b(?:R|Am|Amer|Chem|Phys|Roy|Math|Hist|Geol)\.\s", "", "Society"),
    ("mot", "", r"\s(?:to|for|in|of)\b", "motion"),
    ("resp", "", r"\sfor\b", "responsible"),
    ("diff", r"\b(?:no|sig\.|signif\.|mean|avg\.|age|price)\s", "", "difference"),
    ("util utils", "", r"\sincl", "utilities"),
    ("Ed", r"\(", r"\)", "editor"),
    ("h/w*", "", r"\s(?:fl|thru)", "hardwood"),
    ("inv*", "", r"\s(?:date|total|amt|amount|due)\b", "invoice"),
    ("min", _CENTURY, "", "minute"),
    ("apt", r"\b(?:[Tt]he|[Mm]y|[Oo]ur|[Hh]er|[Hh]is|[Yy]our|[Tt]heir|an)\s", "", "apartment"),
    ("apt*", "", r"\s#?\d{1,4}(?![\d.])", "apartment"),
    ("apt*", r"(?:BR|BA|bath|bdrm|bedroom|BD|bd|\bbed|\bstudio)\s", "", "apartment"),
    ("a/c*", "", r"\s(?:[Nn]o\b|[Nn]umber|#|\d{4})", "account"),
    ("w/e*", "", r":?\s(?:\d|[A-Z])", "week ending"),
    ("w/e*", r"\b(?:the|this|next|last|good|great|nice|lovely|long)\s", "", "weekend"),
    ("o/s*", "", r"\sparking\b", "off-street"),
    ("c/o*", r"\d\s?(?:[MF]|y/?o|y\.o\.)\s|\b[Pp]t\.?\s", "", "complains of"),
    ("c/o*", r"\blate\s", "", "check-out"),
    ("c/o*", "", r"\s(?:by\s|at\s)?\d{1,2}(?::\d\d)?\s?[ap]\.?m?\b", "check-out"),
    ("c/o*", "", rf"\s(?!(?:{'|'.join(sorted(CLOSED))})\b)[a-z]", "complains of"),
    ("d/c*", "", r"\s(?:home|to\b|from\b|summ|instr|date|plan|tomorrow|today|w/)", "discharge"),
    ("exc", "", r"\s(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Xmas|(?i:bank)|hol|w/?e|[Ww]eek|where\b|as\b)", "except"),
    ("bus", "", r"\s(?:days?|hrs?|hours|class|mgmt|mgr|dev|plan|admin|cards?|lic|&)", "business"),
    ("Ex", r"(?:'s|’s|\bGov't|\bPl\.|\bDef\.)\s", r"\s[\dA-Z]", "Exhibit"),
    ("obj", r"\b(?:w/o|w/out|without|no|over)\s", "", "objection"),
    ("acc*", r"\b(?:GenBank|GEO|SRA|ENA|PDB|UniProt|NCBI|EMBL|[Mm]useum)\s", "", "accession"),
    (
        "asst*",
        "",
        r"\s(?:colou?rs?|sizes|flavou?rs|styles|designs|patterns|shades|types|kinds)\b",
        "assorted",
    ),
    ("conf*", "", r"\s(?:#|[Nn]o\b|code\b)", "confirmation"),
    ("conf*", "", r"\s(?:[Rr]m|[Rr]oom|[Cc]all|[Cc]tr|[Cc]enter|[Cc]entre)\b", "conference"),
)


# Of rows for several words: what each is, where it is not its letters.
_IN_FULL = {
    **{key.lower(): name for key, name in tables.STATES_WITH_STOP.items()},
    **{"dx": "diagnosis", "tx": "treatment", "rx": "prescription"},
    **{"bx": "boxes", "cs": "cases", "rl": "rolls", "rls": "rolls"},
    **{"pl": "Plaintiff", "def": "Defendant", "ext": "exterior", "int": "interior"},
    **{"mons": "Mondays", "sats": "Saturdays", "fris": "Fridays"},
    **{"hr": "hour", "wk": "week"},
    **{"inf": "Infantry", "plt": "Platoon", "cav": "Cavalry", "arty": "Artillery", "plts": "platelets"},
}


class _Sense(NamedTuple):
    before: str
    behind: str
    spoken: str
    needs_stop: bool


def _senses() -> dict[str, list[_Sense]]:
    table: dict[str, list[_Sense]] = {}
    for keys, before, behind, spoken in _ROWS:
        for key in keys.split():
            table.setdefault(key.rstrip("*"), []).append(_Sense(before, behind, spoken, key[-1] != "*"))
    return table


_SENSES = _senses()
WITH_SENSES = frozenset(key.lower() for key in _SENSES)
IN_SMALL_LETTERS = frozenset(filter(str.islower, _SENSES))
_pattern = cache(re.compile)


def is_told_behind(word: str, text: str, at: int) -> bool:
    """Whether what stands behind the full stop of a word tells its meaning: no sentence ends there."""
    end = at + len(word) + 1
    return any(one.behind and _fits(one, text, at, end) for one in _rows_of(word))


def _rows_of(word: str) -> Iterator[_Sense]:
    yield from _SENSES.get(word, ())
    if len(word) > 1 and not word.islower():
        yield from _SENSES.get(word.lower(), ())


def _fits(one: _Sense, text: str, at: int, end: int) -> bool:
    before = _pattern(f"(?:{one.before})$") if one.before else None
    return bool(
        _pattern(one.behind).match(text, end)
        and (not before or before.search(text, max(at - _LOOK_BACK, 0), at))
    )


def sense_of(cursor: Cursor, key: str, end: int) -> str:
    """What a word with a slash means by its neighbours ("w/e 12 May"); "" where no row fits."""
    return next((one.spoken for one in _SENSES.get(key, ()) if _fits(one, cursor.text, cursor.at, end)), "")


def sense(cursor: Cursor) -> Reading | None:
    """d. 1603, dep. 9:40, arr LHR, 3 yrs exp: a word cut short whose neighbours tell its meaning."""
    word = cursor.word
    stop = cursor.behind_word == "."
    if cursor.touches_word or not (stop or cursor.behind_word in ("", " ", ":", ",", ";", ")", "#", "/")):
        return None
    end = cursor.word_end + stop
    if cursor.behind_word == "/" and cursor.text[end + 1 : end + 2].isalnum():
        return None
    is_name = word.isupper() and len(word) > 1 and not (stop or cursor.is_shouted)  # "ARR 2023", "the EP 2"
    for one in _SENSES.get(word, ()) if is_name else _rows_of(word):
        if (stop or not one.needs_stop) and _fits(one, cursor.text, cursor.at, end):
            spoken = one.spoken or _IN_FULL.get(word.lower()) or word.upper()
            own = cursor.possessive(end)
            return Reading(spoken + (own or (cursor.last_stop(end) if stop else "")), end + len(own))
    return None
