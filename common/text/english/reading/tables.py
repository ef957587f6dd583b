"""What units, currencies, abbreviations, symbols and emoji are called: data of the English normaliser."""

from __future__ import annotations

from melforge.common.text.english.word_parts import words


def _pairs(text: str) -> dict[str, str]:
    """ "km: kilometer; lb lbs: pound" -> {"km": "kilometer", "lb": "pound", "lbs": "pound"}."""
    table = {}
    for entry in " ".join(text.split()).split(";"):
        keys, _, value = entry.strip().partition(": ")
        table.update(dict.fromkeys(keys.split(), value))
    return table


MAGNITUDES = _pairs("mn mln mio: million; bn bln mrd: billion; tn trn: trillion")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
MONTH_NUMBERS: dict[str, int] = {
    **{name.lower(): number for number, name in enumerate(MONTHS, 1)},
    **{name[:3].lower(): number for number, name in enumerate(MONTHS, 1)},
    "sept": 9,
}
WEEKDAYS = _pairs("""mon: Monday; tu tue tues: Tuesday; wed weds: Wednesday; th thu thur thurs: Thursday;
    fri: Friday; sat: Saturday; sun: Sunday""")

# Singular names; plurals are made by rule but for these. With a full stop: written so, often.
_UNITS = _pairs("""km: kilometer; m: meter; cm: centimeter; mm: millimeter; µm μm um: micrometer; nm:
    nanometer; mi.: mile; ft.: foot; yd. yds.: yard; kg: kilogram; g: gram; mg: milligram; µg μg mcg:
    microgram; lb. lbs.: pound; oz.: ounce; t: ton; L l: liter; mL ml: milliliter; cL cl: centiliter; dL
    dl: deciliter; gal.: gallon; qt.: quart; tsp. tsps.: teaspoon; tbsp. tbsps.: tablespoon; cc: cubic
    centimeter; ha: hectare; ac: acre; s sec. secs.: second; ms: millisecond; µs μs: microsecond; ns:
    nanosecond; min. mins.: minute; h hr. hrs.: hour; wk. wks.: week; yr. yrs.: year; mo. mos.: month; Hz:
    hertz; kHz: kilohertz; MHz: megahertz; GHz: gigahertz; THz: terahertz; KB kB: kilobyte; MB: megabyte;
    GB: gigabyte; TB: terabyte; PB: petabyte; KiB: kibibyte; MiB: mebibyte; GiB: gibibyte; TiB: tebibyte;
    Ki: kibibyte; Mi: mebibyte; Gi: gibibyte; Ti: tebibyte; kb: kilobit; Mb: megabit; Gb: gigabit; Tb:
    terabit; bps: bit per second; kbps Kbps: kilobit per second; Mbps: megabit per second; Gbps: gigabit
    per second; W: watt; kW: kilowatt; MW: megawatt; GW: gigawatt; mW: milliwatt; kWh: kilowatt-hour; MWh:
    megawatt-hour; GWh: gigawatt-hour; TWh: terawatt-hour; Wh: watt-hour; V: volt; kV: kilovolt; mV:
    millivolt; mA: milliamp; mAh: milliamp-hour; Ah: amp-hour; Ω Ω: ohm; kΩ kΩ: kilo-ohm; MΩ: megaohm; µF
    μF: microfarad; pF: picofarad; nF: nanofarad; J: joule; kJ: kilojoule; MJ: megajoule; cal: calorie;
    kcal: kilocalorie; eV: electron-volt; keV: kilo-electron-volt; MeV: mega-electron-volt; GeV:
    giga-electron-volt; TeV: tera-electron-volt; N: newton; kN: kilonewton; Pa: pascal; hPa: hectopascal;
    kPa: kilopascal; MPa: megapascal; GPa: gigapascal; psi: pound per square inch; atm: atmosphere; mmHg:
    millimeter of mercury; K: kelvin; dB: decibel; dBA: decibel A; lm: lumen; lx: lux; mol: mole; mmol:
    millimole; mph: mile per hour; kph kmh kmph: kilometer per hour; mpg: mile per gallon; rpm RPM:
    revolution per minute; fps FPS: frame per second; ppm: part per million; ppb: part per billion; px:
    pixel; dpi DPI: dot per inch; ppi PPI: pixel per inch; bpm BPM: beat per minute; in: inch; au AU:
    astronomical unit; ly: light-year; hp HP: horsepower; kt kts: knot; MP: megapixel; Mpx: megapixel;
    bbl: barrel; IU: international unit; tbs: tablespoon; pts: point; A: amp; Nm: newton-meter; pc. pcs.:
    piece; µL μL uL: microliter; mM: millimolar; µM μM: micromolar; nM: nanomolar; ng: nanogram; kDa:
    kilodalton; pct: percent; cts: cent; sqft: square foot; sqm: square meter; Mbit: megabit; kbit:
    kilobit; Gbit: gigabit; Sv: sievert; mSv: millisievert; µSv μSv: microsievert; cwt: hundredweight;
    doz.: dozen; nts. nt.: night; pk.: pack; pr.: pair; mt: metric ton; mK: millikelvin; µK: microkelvin; GAL:
    gallon; reb rebs: rebound; ast asts: assist; bd: bed; ba: bath; BR: bedroom; ov: over; wkt wkts: wicket;
    mag: magnitude; ppg: point per
    game; rpg: rebound per game; apg: assist per game; dm: decimeter; mEq:
    milliequivalent; kVA: kilovolt-amp; VA: volt-amp; bp: base pair;
    ga.: gauge; spd.: speed; kbp: kilobase pair; Mbp: megabase pair; sf: square foot; dBm:
    decibel-milliwatt; Å Å: angstrom; sh.:
    share; kyr: thousand year; Myr: million year; Gyr: billion year; Mly: million light-year; cbm:
    cubic meter; pg: picogram; kpc: kiloparsec; Mpc: megaparsec; mya: million years ago; btl.: bottle;
    kn: knot; nmi: nautical mile; mIU: milli-international unit; MMBtu: million BTU; Bcf: billion cubic foot;
    Mcf: thousand cubic foot; Tcf: trillion cubic foot""")
UNITS = {unit.rstrip("."): name for unit, name in _UNITS.items()}
STOPPED_UNITS = frozenset(unit[:-1] for unit in _UNITS if unit[-1] == ".")
# Written otherwise than is correct, mostly in other capitals.
LIKE_UNITS = _pairs("""Pct PCT: pct; KG Kg kgs Kgs KGS: kg; KM Km kms: km; CM Cm cms: cm; MM: mm; ML Ml:
    mL; MG: mg; LB LBS Lbs: lb; OZ Oz: oz; FT: ft; YD YDS: yd; KMH Kmh: kmh; KPH: kph; MPH Mph: mph; PSI:
    psi; HR HRS Hrs: hr; MIN MINS: min; SEC SECS: s; HZ hz: Hz; KHZ khz Khz: kHz; MHZ mhz Mhz: MHz; GHZ
    ghz Ghz: GHz; mb: MB; gb Gig: GB; tb: TB; mbps MBPS: Mbps; BA: ba; BD: bd; gbps
    SF: sf; GBPS: Gbps; KBPS: kbps; kw KW: kW; µl μl: µL;
    kwh KWH Kwh: kWh; mw: MW; db: dB; v: V; w: W; mah MAH: mAh; gms gm: g; ltr ltrs: L; mtr mtrs: m; MI:
    mi; gals: gal; qts: qt; TBSP Tbsp: tbsp; Tbs TBS: tbs; TSP: tsp; PPM: ppm; KCAL: kcal; CC: cc""")
# What something happens or is paid per, behind a slash.
PERIODS = words("s mi km sec min hr hour day wk week mo month yr year")
PER_ONLY = _pairs("""nite: night; pkg: package; d: day; nt: night; y: year; pp: person; p: person;
    u: unit; sh: share; cs: case; cust: customer; grp: group; qtr: quarter""")
# These stand for a unit only where they touch the number ("5in"): apart from it they are words or letters.
TOUCHING_UNITS = words("us Ki Mi Gi Ti BA BD in t au AU MP IU mo v w CC mw MI")
PLURALS = {
    **{
        "percent": "percent",
        "gauge": "gauge",
        "speed": "speed",
        "foot": "feet",
        "inch": "inches",
        "hertz": "hertz",
        "ago": "ago",
        "BTU": "BTU",
        "back": "back",
        "lux": "lux",
        "horsepower": "horsepower",
    },
    **{"kelvin": "kelvins", "kilohertz": "kilohertz", "megahertz": "megahertz", "gigahertz": "gigahertz"},
    **{
        "terahertz": "terahertz",
        "dozen": "dozen",
        "pack": "pack",
        **{name: name for name in ("millimolar", "micromolar", "nanomolar")},
        "hundredweight": "hundredweight",
        "magnitude": "magnitude",
    },
}

# symbol or code -> name, names of more, hundredth, hundredths ("" where there is none)
CURRENCIES: dict[str, list[str]] = {
    sign: [*names.split(", "), "", ""][:4]
    for sign, names in _pairs("""$: dollar, dollars, cent, cents; £: pound, pounds, penny, pence; €:
        euro, euros, cent, cents; ¥: yen, yen; ₹: rupee, rupees, paisa, paise; ₩: won, won; ₽: ruble,
        rubles, kopeck, kopecks; ₪: shekel, shekels, agora, agorot; ₺: lira, lira, kurush, kurush; ₴:
        hryvnia, hryvnias, kopiyka, kopiykas; ₫: dong, dong; ₱: peso, pesos, centavo, centavos; ₦: naira,
        naira, kobo, kobo; ฿: baht, baht, satang, satang; ₿: bitcoin, bitcoins; ¢: cent, cents; CHF:
        Swiss franc, Swiss francs, centime, centimes; AUD: Australian dollar, Australian dollars, cent,
        cents; CAD: Canadian dollar, Canadian dollars, cent, cents; NZD: New Zealand dollar, New Zealand
        dollars, cent, cents; HKD: Hong Kong dollar, Hong Kong dollars, cent, cents; SGD: Singapore
        dollar, Singapore dollars, cent, cents; CNY: yuan, yuan; RMB: yuan, yuan; BRL: Brazilian real,
        Brazilian reals, centavo, centavos; SEK: Swedish krona, Swedish kronor; NOK: Norwegian krone,
        Norwegian kroner; DKK: Danish krone, Danish kroner; MXN: Mexican peso, Mexican pesos, centavo,
        centavos; PLN: zloty, zlotys; IDR: rupiah, rupiah; AED: dirham, dirhams; EGP: Egyptian pound,
        Egyptian pounds; HUF: forint, forints; CZK: koruna, koruny; MYR: ringgit, ringgit; PKR: Pakistani
        rupee, Pakistani rupees; TWD: Taiwan dollar, Taiwan dollars; kr: krone, kroner; ZAR: rand, rand,
        cent, cents""").items()
}
CURRENCY_CODES = {code: code for code in CURRENCIES if code.isalpha() and code.isascii()} | _pairs(
    "USD: $; EUR: €; GBP: £; JPY: ¥; INR: ₹; KRW: ₩; RUB: ₽; ILS: ₪; TRY: ₺; BTC: ₿; THB: ฿; NGN: ₦; VND: ₫; "
    "zł: PLN; Rp: IDR; Rs: ₹; Fr SFr: CHF"
)
DOLLARS = _pairs(
    """US: US; A AU: Australian; C CA: Canadian; NZ: New Zealand; HK: Hong Kong; S: Singapore; NT: Taiwan"""
)
STREETS = _pairs("""St Str: Street; Dr: Drive; Ave Av: Avenue; Blvd: Boulevard; Rd: Road; Ln: Lane; Pl:
    Place; Sq: Square; Ct: Court; Expy Expwy: Expressway; Hwy: Highway; Pkwy Pky: Parkway; Ter Terr:
    Terrace; Cir: Circle; Trl: Trail; Aly: Alley; Cres: Crescent; Brg: Bridge; Fwy: Freeway; Tpke:
    Turnpike; Plz: Plaza; Pt: Point; Hts: Heights; Way: Way""")

# Written with a full stop. In small letters; the value keeps the case that is spoken. Behind a key stands "+"
# where no sentence ends ("Mr."); "#" where it is cut short before a number only, and otherwise a word or a
# sentence's end ("No. 5"); "~" where it is a word as well, whose full stop belongs to the sentence unless a
# capital or a number follows. Behind any other a sentence ends before a word that often begins one.
_ABBREVIATIONS = _pairs("""baro: barometer; wtd: weighted; hdg: heading;
    insd: insured; prereq: prerequisite; dcn+: Deacon; betw+: between; anniv:
    anniversary; abp+: Archbishop; sask: Saskatchewan; alta:
    Alberta; nfld: Newfoundland; pk: Park; dr+: Doctor; st: Saint; req: required; sm: small; prob: probably;
    probs: problems; dyn: dynasty; ep: episode; gar: garage; b.sc: BSC; m.sc: MSC; p.h: per hour; p.w: per
    week; p.a: per annum; wm+: William; jas+: James; geo+: George; thos+: Thomas; chas+: Charles; robt+:
    Robert; benj+: Benjamin; saml+: Samuel; edw+: Edward; jno+: John; eliz+: Elizabeth; agg+: aggregate;
    feat+: featuring; civ+: Civil; crim+: Criminal; educ+: Education; fed: Federal; med: medium; plat:
    platform; bef+: before; bur+: buried; inj+: injection; regt+: Regiment; lat#: latitude; long#:
    longitude; inst: instant; ult: ultimo; arr+#: arrives; exp#: expires; lieut+: Lieutenant; sergt+:
    Sergeant; mr+: Mr; mrs+: Mrs; ms+#: Ms; mx+: Mx; messrs+: Messers; mme+: Madame; mlle+: Mademoiselle;
    prof+: Professor; rev+~: Reverend; hon+: Honorable; gen+~: General; brig+: Brigadier; col+~: Colonel;
    maj+: Major; capt+: Captain; cmdr+: Commander; cdr: Commander; lt+: Lieutenant; cpl+: Corporal; pvt+:
    Private; adm+~: Admiral; sen+~: Senator; rep+~: Representative; gov+~: Governor; pres+~: President;
    supt+: Superintendent; insp+: Inspector; msgr+: Monsignor; atty+: Attorney; amb+~: Ambassador; fr+~:
    Father; jr: Junior; sr: Senior; esq: Esquire; bros: Brothers; co: Company; inc: Incorporated; ltd:
    Limited; corp: Corporation; llc: LLC; est~: estimated; assn: association; assoc: associates; ave~:
    Avenue; rd: Road; ln: Lane; hwy: Highway; sq~: Square; ct~: Court; pl~: Place; apt#: apartment; ste#:
    suite; fl#: floor; mt: Mount; ft: Fort; pt#: Point; v+~: versus; etc: et cetera; al: al; ca+: circa;
    cf+: compare; viz+: namely; incl+: including; esp+: especially; max~: maximum; min~: minimum;
    temp~: temperature; tel: telephone; ext#: extension; fig#: figure; figs#: figures; eq#:
    equation; eqs#: equations; vol#: volume; vols#: volumes; ch#: chapter; chap#: chapter; sec#: section;
    sect#: section; art#: article; par#: paragraph; para#: paragraph; pp#: pages; ed#: edition; eds:
    editors; trans~: translated; repr: reprinted; no#: number; nos#: numbers; nr+#: number; op#: opus;
    ser#: series; mss: manuscripts; calif: California; mass~: Massachusetts; conn: Connecticut; fla:
    Florida; penn: Pennsylvania; tex~: Texas; okla: Oklahoma; ariz: Arizona; ala~: Alabama; wis:
    Wisconsin; minn: Minnesota; tenn: Tennessee; mich: Michigan; nev: Nevada; colo: Colorado; ont:
    Ontario; que: Quebec; e.g+ eg+: for example; i.e+ ie+: that is; a.k.a: also known as; ph.d: PHD; n.b:
    note well; d.c: DC; r.i.p: RIP; lit~: literally; orig: originally; adj: adjective; adv: adverb; pron:
    pronounced; syn: synonym; ex#: example; sp~: spelling; expy: Expressway; rte: Route; rm: room; det:
    Detective; cpt+: Captain; drs+: Doctors; mmes+: Mesdames; pfc+: Private First Class; emer+~: Emeritus;
    dist: District; rt~: Right; sra+: Senora; srta+: Senorita; arts#: articles; cl#: clause; chs#:
    chapters; pg#: page; pgs#: pages; ll#: lines; sc#: scene; mk#: mark; bk#: book; bks#: books; prop#:
    Proposition; amend#: Amendment; cath: Cathedral; sz: size; elev: elevation; mfg: manufacturing; mfr:
    manufacturer; dir~: Director; exec: Executive; comm: Commissioner; cond: condition; ctr: Center; wt:
    weight; ht: height; pkt: packet; reg#: Regulation; utils: utilities; ref#: reference; bal: balance;
    pop~: population; dep~: deputy; cont: continued; std~: standard; vers: version; secy: Secretary;
    treas: Treasurer; chm: Chairman; cpo+: Chief Petty Officer; suppl: supplement; tol: tolerance; thm:
    theorem; alt: altitude; cu: cubic; plc: PLC; stat#: Statutes; addl: additional; chaps#: chapters; dk#:
    Deck; rdg: reading; appx: appendix; cttee: Committee;
    bro+~: Brother; vv#:
    verses; rms: rooms;
    vu: view;
    blk: block; subd:
    subdivision; admin~:
    administration; appl: applied; avail: available; cert~: certificate; cmte: committee; coll~: college;
    desc: description; diff~: difference; disc~: discount; dwg: drawing; equip: equipment;
    imp~: important; instr: instructions; mach~: machine; mech: mechanical; neg: negative; perm~:
    permanent; prelim~: preliminary; proc~: procedure; prod~: production; pub~: public; rel~: relative;
    resp: respiration; ret~: retired; seq~: sequence; spec~: specification; specs~: specifications; svcs:
    services; tot: total; var~: variable; ver~: version; xfer: transfer; y.o: year old; refs: references;
    assy: assembly; plts: pallets; fcsts: forecasts; mfd: manufactured; exps: expenses;
    batt: battery; hum~: humidity; ins~: insurance; yld: yield; lv~: leave; opt~: option; dest:
    destination; dirs: directors; cllr+: Councillor; conc: concentrated; accom: accommodation; admr:
    administrator; agcy: agency; agt: agent; alloc: allocation; arb~: arbitration; archit: architecture;
    attys: attorneys; auth~: authorized; aux~: auxiliary; bkcy: bankruptcy; calc: calculated; cfm:
    confirm; chron: chronological; cllrs: Councillors; cols: columns; comp~: compensation;
    conds: conditions; consol~: consolidated; corr~: corrected; ctrs: centers; cty: county; curr: current;
    dec'd: deceased; dels: deliveries; delv: delivery; dia~: diameter; dims~: dimensions; divs: divisions;
    econ~: economics; elem: elementary; engrs: engineers; expt: experiment; exptl: experimental; facs:
    facilities; fcn: function; fin~: financial; fwy: freeway; geog: geography; geol: geology;
    grad~: graduate; gtd: guaranteed; guar: guaranteed; hwys: highways; ident~: identification; indus~:
    industrial; lang~: language; lib~: library; liq: liquid; manuf: manufacturing; mdse: merchandise;
    meas: measured; mgt: management; mun~: municipal; neurol: neurology; nom~: nominal; obs: observed;
    offs~: offices; opp~: opposite; ord~: order; orgs: organizations; payt: payment; pers~: personnel;
    philos: philosophy; pos~: position; poss~: possible; prec: preceding; presby~: Presbyterian; psych~:
    psychology; publ: published; quals: qualifications; recs: recommendations; regs~:
    regulations; relig~: religion; rept: report; reqs: requirements; req'ts: requirements; resid:
    residential; rev'd: reversed; sci~: science; sig~: signature; sup~: superior;
    tech~: technical; techs~: technicians; telecom~: telecommunications; theol: theology; twp: township;
    vac: vacuum; vert~: vertical; warr~: warranty; xmtr: transmitter; ests: estimates; approps:
    appropriations; asstd: assorted; pbk: paperback; chc: chance; hbk: hardback;
    flr: floor; gtee: guarantee; reimb: reimbursement; invs: invoices;
    prem~: premium; recip: recipient; wgt: weight; crys: crystals; satd: saturated; solns: solutions; aq:
    aqueous; abd~: abdomen; bx: biopsy; hosps: hospitals; neuro~: neurological; wds: words; wnd: wind;
    assocs: associates; gals~: gallons; hts: heights; sta~: station; univs: universities; bn: Battalion;
    bde: Brigade; abn: Airborne; ssgt+: Staff Sergeant; tsgt+: Technical Sergeant; msgt+: Master Sergeant;
    gysgt+: Gunnery Sergeant; sfc+: Sergeant First Class; lcpl+: Lance Corporal; ltjg+: Lieutenant Junior
    Grade; ens+: Ensign; cwo+: Chief Warrant Officer; cong~: Congress; precip: precipitation; serv:
    service; sens: sensitivity; nt: net; mtge: mortgage; lns: lanes; blkd: blocked; cor:
    corner; asts: assists; cntr: container; sts: Streets; fx: fracture; tx: treatment; pr: pair; bot:
    bottle; bots: bottles; xing: crossing; jnr: Junior; acq: acquired; trib: tribune; spc+: Specialist;
    lcdr+: Lieutenant Commander; radm+: Rear Admiral; vadm+: Vice Admiral; sqn: Squadron; lett: letters;
    comty: Community; affd: affirmed; biol: biological; aff: affidavit; pfd: preferred; cum: cumulative;
    conv: convertible; chq: cheque; wdl: withdrawal; frt: freight; cnee: consignee; fdn: foundation; ckt:
    circuit; xfmr: transformer; csk: countersink; ppt: precipitate; obsd: observed; cryst: crystals; nn#:
    notes; poss: possible; appls: appliances; lk: Lake; vly: Valley; cyn: Canyon; eng~: engineering; dev~:
    development; diss~: dissertation; alum~: aluminum; gyp~: gypsum; bull~: bulletin; kit~: kitchen; ans~:
    answer; cmdg: commanding; arty: artillery; spt: support; consgn: consignment; dt: date; lgt: light;
    lgts: lights; lvs: leaves; srs: seniors; conf: conference; deg: degree; pref: preferred; equiv:
    equivalent; exc: excellent; platf: platform; const: Constitution; div: division; univ: university; pkwy:
    Parkway; excl: excluding; misc: miscellaneous; hosp: hospital; util: utility; sched: schedule; evid:
    Evidence; encl: enclosed; eval: evaluation; freq: frequency; maint: maintenance; matl: material; num:
    number; prev: previous; proj: project; recd: received; subj: subject; typ: typical; veh: vehicle; acad:
    academy; annot: annotated; bibl: bibliography; canc: canceled; clin: clinical; coeff: coefficient;
    compl: complete; config: configuration; constr: construction; contd: continued; contr: contract;
    coord: coordinator; cust: customer; diam: diameter; dimen: dimension; distr: distribution; elec:
    electric; engr: engineer; engrg: engineering; exch: exchange; exh: exhibit; hist: history; horiz:
    horizontal; hydr: hydraulic; illus: illustrated; incr: increase; indiv: individual; irreg: irregular;
    memb: member; occ: occupation; ofcr: officer; oper: operating; pharm: pharmacy; polit: political;
    princ: principal; priv: private; prog: program; retd: retired; sess: session; sociol: sociology;
    subtot: subtotal; suff: sufficient; surg: surgery; surv: survey; symp: symposium; terr: territory;
    transl: translated; wrnty: warranty; whse: warehouse; supvr: supervisor; stge: storage; dil: dilute;
    evap: evaporated; soln: solution; anhyd: anhydrous; recryst: recrystallized; bilat: bilateral; btry:
    Battery; cnty: County; decl: declaration; stip: stipulation; calcd: calculated; unk: unknown; lic:
    license; loc: location; immac: immaculate; lndry: laundry; tbl: table; spd: speed; sgd: signed; chmn:
    Chairman; shpt: shipment; svc: service; fcst: forecast; bkrpt: bankrupt; brkr: broker; gnd: ground; hdqrs:
    headquarters; lgth: length; mktg: marketing; pwr: power; whs: warehouse; hdlg: handling; rgn: region;
    cmpd: compound; brdg: bridge; grp: group""")
# Cut short without a full stop too; none of them is a word, and most have no vowel to be said by.
_SHORT_FORMS = _pairs("""attn: attention; fwd: forward; acct: account; pks: packs; rgds: regards; cnr:
    corner; amt: amount; appt: appointment; approx+: approximately; asst+: assistant; bldg: building; blvd:
    Boulevard; dept: department; govt: government; intl: international; mgmt: management; mgr+: manager;
    msg: message; mtg: meeting; natl: national; pkg: package; qty: quantity; rcvd: received; sgt+: Sergeant;
    wk: week; wkday: weekday; yr: year; hrs: hours; mins: minutes; secs: seconds; lbs: pounds; tbsp:
    tablespoon;
    tsp: teaspoon; qtr: quarter; mth: month; tkt: ticket; vs+: versus; wkly: weekly; yrly: yearly; abt:
    about; stn: station; ea: each; ctrl: control; cmd: command; flt: flight; dbl: double; mkt: market; chk:
    check; wknd: weekend; mtn: mountain; bdrm: bedroom; bsmt: basement; pwd: password; reqd: required; rqd:
    required; rdbt: roundabout; sngl: single; hdwd: hardwood; dlx: deluxe; rpt: report; jct: junction; blks:
    blocks; wkends: weekends; lg: large; bkfst: breakfast; sgl: single; pts: points; mph: miles per hour;
    kph: kilometers per hour; pmt: payment; pymt: payment; ofc: office; adptr: adapter; lrg: large; txn:
    transaction; batts: batteries; dtd: dated; rvw: review; chg: charge; pd: paid; stmt: statement; rcpt:
    receipt; hx: history; sx: symptoms; abx: antibiotics; rwy: runway; twy: taxiway; apch: approach; acft:
    aircraft; tstm: thunderstorm; pcpn: precipitation; cpn: coupon; shs: shares; addr: address; attd:
    attached; trlr: trailer; hdwr: hardware; vlv: valve; bldr: builder; pkts: packets; ctn: carton; dmg:
    damage; agmt: agreement; premkt: pre-market; lge: large; gdn: garden; enrl: enrollment; hgb: hemoglobin;
    hct: hematocrit; lvl: level; avg: average; mvt: movement; gd: good; tks: thanks; twnhse: townhouse; dsg:
    dressing; grn: green; hdc: half double crochet; idx: index; flrs: floors""")
_SHORT_FORMS |= {
    f"{key.rstrip('+')}s": f"{name[:-1]}ies" if name[-1] == "y" and name[-2] != "a" else f"{name}s"
    for key, name in _SHORT_FORMS.items()
    if key.rstrip("+")[-1] != "s"
} | _SHORT_FORMS
# ... and in messages, never with one.
IN_MESSAGES = _pairs("""bday: birthday; pls plz: please; ppl: people; thx thnx: thanks; tmrw tmw:
    tomorrow; tonite: tonight; txt: text; txts: texts; tix: tickets; sry: sorry; btwn: between; hmwk:
    homework; frm: from; smth: something; ystrdy: yesterday; alrdy: already; rn: right now;
    stdin: standard in; stdout: standard out; stderr: standard error; wrk: work;
    yday: yesterday; prolly: probably; tmr: tomorrow; tdy: today; cld: could; shld: should; wld: would;
    jst: just; nxt: next; wht: what; whn: when; bfast: breakfast; dnt: don't; rly: really; urs:
    yours; srsly: seriously""")
# With an apostrophe for what is left out.
SHORTENED = _pairs("""gov't: government; gov'ts: governments; int'l: international; nat'l: national;
    dep't: department; ass'n: association; cont'd: continued; req'd: required; dx'd: diagnosed;
    exp'd: experienced; appr'd: approved; rec'd:
    received; sec'y: secretary; reg'n: regulation; p'ship: partnership; s'holder: shareholder; soc'y:
    society; ass't: assistant; b'day: birthday; b'days: birthdays; add'l: additional; m'f'g: manufacturing;
    aff'g: affirming; rev'g: reversing; o'er: over; ne'er: never""")
# With a slash for what is left out.
SLASHED = _pairs("""w/o: without; w/: with; c/o: care of; n/a: NA; y/o: year old; r/t: round trip;
    w/out: without; s/o: SO; d/o: DO; b/t: between;
    w/in: within; w/e: whatever; a/c: A C; d/g: double glazing; o/s: O S; w/c: week commencing; b/c:
    because; b/w: between; a/k/a: also known as;
    d/b/a: doing business as; f/k/a: formerly known as; w/v: weight by volume; w/w: weight by weight;
    v/v: volume by volume; r/o: rule out; w/u: workup; d/t: due to; c/w: consistent with; s/s: signs and
    symptoms; f/u: follow up; d/c: discontinue; n/s: non-smoking; d/c'd: discharged; h/w: hardware; c/a:
    central air; h/o: history of; s/p: status post; y/y: year over year; m/m: month over month; q/q: quarter
    over quarter; p/h: per hour; p/w: per week; p/m: per month; p/u: pickup; p/e: P E; o/n: overnight;
    s/h: shipping and handling; w/d: withdrawal; c/h: central heating; ac/dc: AC DC; tcp/ip: TCP IP; p/a: per
    annum; km/h: kilometers per hour; m/s: meters per second""")
# Written without their apostrophe.
SHORTENED |= {
    word.replace("'", ""): word
    for word in words("""they're you're they've you've we've could've should've would've that's what's
    there's here's who's can't won't i'm doesn't didn't don't isn't aren't wasn't weren't hasn't haven't
    hadn't wouldn't couldn't shouldn't they'll you'll ain't""")
}
# Digits for sounds, in small letters only.
RESPELLED = _pairs("""gr8: great; l8r: later; l8: late; m8: mate; h8: hate; w8: wait; b4: before; sk8:
    skate; str8: straight; every1: everyone; any1: anyone; some1: someone; 2day: today; 2nite: tonight;
    2night: tonight; 2moro 2morrow: tomorrow; 4ever: forever; 4get: forget; g2g: got to go; 2mrw 2moz:
    tomorrow; 4u: for you; m8s: mates; in2: into; sum1: someone; ni8: night""")


def respelled(word: str) -> str:
    """ "gr8", "Gr8" -> "great"; "" for any other word. In capitals two characters are a name: "B4"."""
    is_meant = len(word) > 2 or word.islower()
    return RESPELLED.get(word.lower(), "") if is_meant else ""


# Books of the Bible as they are cut short before a chapter and a verse.
BOOKS = _pairs("""Gen: Genesis; Ex Exod: Exodus; Lev: Leviticus; Num: Numbers; Deut Dt: Deuteronomy; Josh:
    Joshua; Judg: Judges; Sam: Samuel; Kgs: Kings; Chr Chron: Chronicles; Neh: Nehemiah; Ps Pss: Psalm;
    Prov: Proverbs; Eccl Eccles: Ecclesiastes; Is Isa: Isaiah; Jer: Jeremiah; Lam: Lamentations; Ezek:
    Ezekiel; Dan: Daniel; Hos: Hosea; Mic: Micah; Hab: Habakkuk; Zech: Zechariah; Mal: Malachi; Matt Mt:
    Matthew; Mk: Mark; Lk: Luke; Jn: John; Rom: Romans; Cor: Corinthians; Gal: Galatians; Eph: Ephesians;
    Phil: Philippians; Col: Colossians; Thess: Thessalonians; Tim: Timothy; Tit: Titus; Philem: Philemon; Heb:
    Hebrews; Jas: James; Pet: Peter; Rev: Revelation""")
BOOKS |= dict.fromkeys(
    words("""Genesis Exodus Leviticus Numbers Deuteronomy Joshua Judges Ruth Samuel Kings Chronicles Ezra
    Nehemiah Esther Job Psalm Psalms Proverbs Ecclesiastes Isaiah Jeremiah Lamentations Ezekiel Daniel Hosea
    Joel Amos Obadiah Jonah Micah Nahum Habakkuk Zephaniah Haggai Zechariah Malachi Matthew Mark Luke John
    Acts Romans Corinthians Galatians Ephesians Philippians Colossians Thessalonians Timothy Titus Philemon
    Hebrews James Peter Jude Revelation Surah Sura Quran Qur'an Koran"""),
    "",
)
_MARKED = _SHORT_FORMS | _ABBREVIATIONS
BEFORE_NAMES, BEFORE_NUMBERS, ALSO_WORDS = (
    frozenset(key.rstrip("+#~") for key in _MARKED if mark in key) for mark in "+#~"
)
SHORT_FORMS = IN_MESSAGES | {key.rstrip("+"): value for key, value in _SHORT_FORMS.items()}
ABBREVIATIONS = {
    **{key: MONTHS[number - 1] for key, number in MONTH_NUMBERS.items() if key.title() not in MONTHS},
    **{unit: UNITS[unit] + "s" * (unit[-1] == "s") for unit in STOPPED_UNITS},
    **SHORT_FORMS,
    **{key.rstrip("+#~"): value for key, value in _ABBREVIATIONS.items()},
}
# Those with which a sentence may go on.
CUT_SHORT = frozenset((*ABBREVIATIONS, *WEEKDAYS, *map(str.lower, STREETS))) - IN_MESSAGES.keys()
CUT_SHORT |= {other.lower() for other, unit in LIKE_UNITS.items() if unit in STOPPED_UNITS}
TITLES = {
    f"{key.title()}s": f"{ABBREVIATIONS[key]}s" for key in words("prof gen sen rep gov col capt lt rev amb")
}
STATES_WITH_STOP = _pairs("""Ill: Illinois; Pa: Pennsylvania; Va: Virginia; Ga: Georgia; Md: Maryland;
    Mo: Missouri; Ky: Kentucky; La: Louisiana; Del: Delaware; Kan: Kansas; Neb: Nebraska; Ore: Oregon;
    Wash: Washington; Wyo: Wyoming; Vt: Vermont; Cal: California; Ind: Indiana; Miss: Mississippi; Mont:
    Montana; Ark: Arkansas; Wis: Wisconsin; Tex: Texas; Mass: Massachusetts""")
STATES = _pairs("""AL: Alabama; AK: Alaska; AZ: Arizona; AR: Arkansas; CA: California; CO: Colorado; CT:
    Connecticut; DE: Delaware; FL: Florida; GA: Georgia; HI: Hawaii; ID: Idaho; IL: Illinois; IN: Indiana; IA:
    Iowa; KS: Kansas; KY: Kentucky; LA: Louisiana; ME: Maine; MD: Maryland; MA: Massachusetts; MI: Michigan;
    MN: Minnesota; MS: Mississippi; MO: Missouri; MT: Montana; NE: Nebraska; NV: Nevada; NH: New Hampshire;
    NJ: New Jersey; NM: New Mexico; NY: New York; NC: North Carolina; ND: North Dakota; OH: Ohio; OK:
    Oklahoma; OR: Oregon; PA: Pennsylvania; RI: Rhode Island; SC: South Carolina; SD: South Dakota; TN:
    Tennessee; TX: Texas; UT: Utah; VT: Vermont; VA: Virginia; WA: Washington; WV: West Virginia; WI:
    Wisconsin; WY: Wyoming""")
STATES_CUT_SHORT = frozenset(
    (*STATES_WITH_STOP, *(key.title() for key, name in ABBREVIATIONS.items() if name in STATES.values()))
)
PROVINCES = _pairs("""ON: Ontario; BC: British Columbia; AB: Alberta; QC: Quebec; MB: Manitoba; SK:
    Saskatchewan; NS: Nova Scotia; NB: New Brunswick; NL: Newfoundland and Labrador""")
# These are words as well, or common in capitals: a state's only before a ZIP code.
STATES_ALSO_WORDS = words("OK HI OH ME ID MS")

# In capitals, and said as a word.
ACRONYM_WORDS = words("""NASA NATO UNESCO UNICEF OPEC AIDS LASER RADAR SONAR SCUBA FIFA UEFA NAFTA OSHA FEMA
    DARPA SWAT RAM ROM PIN SIM COVID SARS NASDAQ CRISPR BIOS LAN WAN ASEAN MENSA NIMBY YOLO FOMO ERISA DACA
    HIPAA LIDAR MIDI PIXAR IKEA FIAT EPCOT UNIX CAD DRAM POTUS FLOTUS ICANN""")
ACRONYMS = _pairs("""JPEG JPG: jay peg; SQL: sequel; WYSIWYG: wizzy wig; OK: okay; TOEFL: toe full; ASCII:
    askey; iOS: IOS; siRNA: SI RNA; miRNA: MI RNA; cfDNA: CF DNA; arXiv: archive; YoY: year over year; IMDb:
    IMDB;
    CoV: COV; QoQ: quarter over quarter; MoM: month over month; pKa: PKA; PCIe:
    PCI E; NVMe: NVME; NOAA: Noah; SCSI: scuzzy; PhD: PHD; MSc: MSC; BSc: BSC; WWI WW1: World War
    One; WWII WW2: World War Two; GIF: giff; FICA: fie ka; MOMA: moma; SCOTUS: scotus; IPv4: IPV four;
    IPv6: IPV six""")
# Capitals of three letters or fewer that are said as words wherever they stand; longer ones are looked up.
SHORT_WORDS = words("""a am an as at be by do go he hi if in is it me my no of oh on or so to up we ok all
    and any are ask bad big boy but buy can car cat cut dad day did die dog eat end far few fix for fun get
    god got guy had has her hey him his hot how its job joy key kid let lie lot low mad man map may men met
    mom mr mrs ms dr new nor not now odd off old one our out own pay put ran red run sad sat saw say see
    set she shy sin sit six sky son sun tax tea ten the tip too top try two us use war was way wet who why
    win won wow yes yet you per act add ado age ago aid aim air ale ant ape apt arc arm art ash ate awe axe
    aye bag ban bar bat bay bed bee beg bet bid bin bit bow box bud bug bum bun bus bye cab cap cod cop cot
    cow cry cub cup dab dam den dew dig dim dip dot dry dub due dug dye ear ebb eel egg ego elf elk elm
    era eve ewe eye fad fan fat fax fed fee fig fin fir fit flu fly foe fog fox fry fur gag gap gas gay gel
    gem gig gin gum gun gut gym ham hay hen hid hip hit hog hop hub hue hug hum hut ice icy ill ink inn ion
    ire ivy jab jam jar jaw jet jog jug kin kit lab lad lag lap law lay leg lid lip lit log mat meh mix mob
    mop mud mug nap net nod nun nut oak oar oat oil opt orb ore ouch owe owl pad pal pan pat paw pea peg
    pen pet pie pig pit pod pop pot pub pun pup rag ram rap rat raw ray rib rid rig rim rip rob rod rot row
    rub rug rum rye sap sew sip ski sob sow soy spa spy sub sue sum tab tag tan tap tar tie tin toe ton tow
    toy tub tug urn van vet vow wag wax web wed wig wit woe wok yay yeah yen yep zap zip zoo""")
# Initials that are written in small letters too.
SMALL_ACRONYMS = words("""usb cpu cpus gpu gpus html http https url urls pdf pdfs dvd dvds tv tvs faq
    faqs diy atm atms css xml gps ssd ssds hdd vpn vpns isp dna rna ssh ftp tcp udp dns fbi cia nba nfl
    nhl mlb usa uk ceo cfo cto pc pcs php sms id3 kpi kpis rgb lcd oled svg api apis ip dj djs ufo ufos
    gdp hiv iq nyc lgbt bbc cnn nhs phd hr gmt rsvp bbq csv ssl tls iot omg wtf idk imo imho afaik tbh smh
    nvm irl fyi ama aka brb obo icymi aita lmk doe hbu wyd lmao mvp
    doi ttyl btw ikr fwiw ffs pov gpa roi bmi gui ide llm llms os pr""")
# ... but for these, which are letters unless the whole sentence is in capitals.
SPELLED = words("ERA US IT AM PM WHO UN UK EU SAT TV PC AI ID PA MA AC DC CD ER OT PS CV AD MS MR")

# Words that their accents tell from others, or whose letters without accents tell too little.
ACCENTED = _pairs("""résumé: R EH1 Z AH0 M EY2; résumés: R EH1 Z AH0 M EY2 Z; exposé: EH2 K S P OW0 Z
    EY1; rosé: R OW0 Z EY1; pâté: P AA0 T EY1; lamé: L AA0 M EY1; maté: M AA1 T EY2; saké: S AA1 K IY0;
    olé: OW0 L EY1; touché: T UW0 SH EY1; soufflé: S UW0 F L EY1; soufflés: S UW0 F L EY1 Z; sauté: S AO0
    T EY1; sautéed: S AO0 T EY1 D; flambé: F L AA0 M B EY1; consommé: K AA2 N S AH0 M EY1; crudités: K R
    UW2 D IH0 T EY1; brûlée: B R UW0 L EY1; crème: K R EH1 M; blasé: B L AA0 Z EY1; frappé: F R AE0 P
    EY1; née: N EY1; né: N EY1; déjà: D EY1 ZH AA0; fiancé: F IY2 AA0 N S EY1; fiancée: F IY2 AA0 N S
    EY1; divorcé: D IH0 V AO2 R S EY1; divorcée: D IH0 V AO2 R S EY1; élan: EY0 L AA1 N; négligée: N EH2
    G L IH0 ZH EY1; attaché: AE2 T AH0 SH EY1; décolleté: D EY2 K AA0 L AH0 T EY1; glacé: G L AE0 S EY1;
    coupé: K UW0 P EY1; abbé: AE0 B EY1; curé: K Y UH0 R EY1; café: K AH0 F EY1; nestlé: N EH1 S L EY0;
    andré: AA1 N D R EY0; josé: HH OW0 Z EY1; rené: R AH0 N EY1; beyoncé: B IY0 AA1 N S EY0; renée: R AH0
    N EY1; zoë: Z OW1 IY0; chloë: K L OW1 IY0; noël: N OW0 EH1 L; façade: F AH0 S AA1 D; señor: S EY0 N Y
    AO1 R; señora: S EY0 N Y AO1 R AH0; niño: N IY1 N Y OW0; niña: N IY1 N Y AH0; piñata: P IH0 N Y AA1 T
    AH0; piña: P IY1 N Y AH0; mañana: M AH0 N Y AA1 N AH0; jalapeño: HH AA2 L AH0 P EY1 N Y OW0;
    jalapeños: HH AA2 L AH0 P EY1 N Y OW0 Z; über: UW1 B ER0; doppelgänger: D AA1 P AH0 L G AE2 NG ER0;
    smörgåsbord: S M AO1 R G AH0 S B AO2 R D; françois: F R AA0 N S W AA1; côte: K OW1 T; pelé: P EH1 L
    EY0; bébé: B EY0 B EY1; vélo: V EY1 L OW0; entrée: AA1 N T R EY2; entrées: AA1 N T R EY2 Z; phở: F
    AH1; açaí: AA0 S AA0 IY1""")
SYMBOLS = _pairs("""&: and; @: at; %: percent; +: plus; =: equals; <: less than; >: greater than; #: hash;
    $: dollars; £: pounds; €: euros; ¥: yen; ₹: rupees; ¢: cents; ₩: won; ₽: rubles; ₿: bitcoin; ^: caret;
    ~: tilde; \\: backslash; /: slash; −: minus; ×: times; ÷: divided by; ±: plus or minus; ≠: is not equal
    to; ≤: is less than or equal to; ≥: is greater than or equal to; ≈: is approximately; ≡: is identical
    to; ∝: is proportional to; ∞: infinity; √: the square root of; ∛: the cube root of; π: pi; ∑: the sum
    of; ∏: the product of; ∫: the integral of; ∂: partial; ∇: del; ∆: delta; Δ: delta; ∈: in; ∉: not in; ∅:
    the empty set; ∪: union; ∩: intersection; ⊂: is a subset of; ⊆: is a subset of; ∀: for all; ∃: there
    exists; ¬: not; ∧: and; ∨: or; ∴: therefore; ∵: because; ⊕: plus; ⊗: times; ⋅ ∙: times; ∘: of; →: to;
    ⇒: implies; ⇔: if and only if; ↔: to and from; ⇌: in equilibrium with; ←: from; ↑ ▲: up; ↓ ▼: down; °:
    degrees; ℃: degrees Celsius; ℉: degrees Fahrenheit; §: section; ¶: paragraph; ©: copyright; ®:
    registered; ™: trademark; ℠: service mark; №: number; ‰: per mille; µ: micro; Ω: ohm; ℓ: liter; ª: a;
    º: degrees; ′: prime; ″: double prime; ½: one half; ¼: one quarter; ¾: three quarters; ⅓: one third; ⅔:
    two thirds; ⅕: one fifth; ⅖: two fifths; ⅗: three fifths; ⅘: four fifths; ⅙: one sixth; ⅚: five sixths;
    ⅛: one eighth; ⅜: three eighths; ⅝: five eighths; ⅞: seven eighths; ⅐: one seventh; ⅑: one ninth; ⅒:
    one tenth; ✓ ✔: check; ✗ ✘: cross; ★ ☆: star; ♥ ❤: heart; ♠: spades; ♣: clubs; ♦: diamonds; ♪ ♫: music;
    ♩: quarter note; ♀: female; ♂: male; ☎: telephone; ∠: angle; ⊥: is perpendicular to; ∥: is parallel to;
    ♭: flat; ♯: sharp; ♮: natural; ⌘: command; ⌥: option; ⇧: shift; ⌃: control; ↵ ⏎: return; ⧸: over""")
GREEK = _pairs("""α: alpha; β: beta; γ: gamma; δ: delta; ε: epsilon; ζ: zeta; η: eta; θ: theta; ι: iota; κ:
    kappa; λ: lambda; μ: mu; ν: nu; ξ: xi; ο: omicron; π: pi; ρ: rho; σ ς: sigma; τ: tau; υ: upsilon; φ: phi;
    χ: chi; ψ: psi; ω: omega""")
# Two signs or more that make one.
SIGNS = {
    **{"+/-": "plus or minus", "<=": "less than or equal to", ">=": "greater than or equal to"},
    **{
        "==": "equals",
        "!=": "is not equal to",
        "->": "to",
        "-->": "to",
        "=>": "to",
        "==>": "to",
        "<->": "to and from",
        "<-": "from",
    },
    **{
        "&c": "et cetera",
        "&&": "and",
        "||": "or",
        ":)": "smiley face",
        ":-)": "smiley face",
        ":(": "sad face",
    },
    **{":-(": "sad face", ";)": "winking face", ";-)": "winking face", ":D": "grinning face"},
    **{":-D": "grinning face", "<3": "heart", ":P": "tongue out", ":'(": "crying face"},
    **{"</3": "broken heart", "^_^": "happy face", "XD": "laughing face"},
}
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
# Layout, which is silent: quotation marks, bullets, lines.
SILENT = frozenset('"*_`«»‹›“”„‟•·‣⁃◦▪▫■□●○◆◇►▶▸¿¡⟨⟩\u2500\u2501\u2502\u2503')

JOINER = "\u200d"
# Variation selectors, the keycap, skin tones.
EMOJI_PARTS = frozenset("\ufe0f\ufe0e\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
EMOJI = _pairs("""☑: checked;
    😀 😃 😄 😁: grinning face; 😆: laughing face; 😅: nervous laugh; 😂: tears of joy; 🤣:
    rolling on the floor laughing; 😊 ☺: smiling face; 🙂: slight smile; 🙃: upside-down smile; 😉: winking
    face; 😍: heart eyes; 🥰: smiling with hearts; 😘: blowing a kiss; 😎: smiling with sunglasses; 🤔:
    thinking face; 😐: neutral face; 🙄: rolling eyes; 😏: smirk; 😢: crying face; 😭: loudly crying face; 😡
    😠: angry face; 😱: screaming in fear; 😴: sleeping face; 🥺: pleading face; 😳: flushed face; 🤯: mind
    blown; 🤗: hugging face; 🤷: shrug; 🤦: facepalm; 👍: thumbs up; 👎: thumbs down; 👌: OK hand; 👏:
    clapping hands; 🙏: folded hands; 💪: flexed biceps; 👋: waving hand; ✌: victory hand; 🤞: fingers
    crossed; 👀: eyes; ❤: red heart; 💔: broken heart; 💕 💖: hearts; 💯: one hundred; 🔥: fire; ✨: sparkles;
    🎉: party popper; 🎂: birthday cake; 🎁: gift; ⭐ 🌟: star; ☀: sun; 🌙: moon; 🌈: rainbow; ☕: coffee; 🍕:
    pizza; 🍺: beer; 🚀: rocket; ✅: check mark; ❌: cross mark; ⚠: warning; ❗: exclamation mark; ❓:
    question mark; 💡: light bulb; 📌: pushpin; 📅: calendar; 📷: camera; 🎵: musical note; 🐶: dog; 🐱: cat;
    💩: pile of poo; 👇: pointing down; 👆: pointing up; 👉: pointing right; 👈: pointing left; 🤖: robot; 👻:
    ghost; 💀: skull""")

TOP_LEVEL_DOMAINS = words("""com org net edu gov mil int io ai co uk de fr eu ca au jp cn ru nl br ch se pl
    es info biz dev app xyz tv fm me gl ly tech online site shop blog cloud wiki nz kr za mx""")
HIDDEN_FILES = words("""env gitignore bashrc bash_profile zshrc profile htaccess npmrc gitattributes vimrc
    netrc ssh git nvmrc eslintrc prettierrc dockerignore editorconfig""")
FILE_ENDINGS = words("""txt pdf doc docx xls xlsx ppt pptx csv tsv json yaml yml xml html htm css js ts py
    conf rs go java cpp hpp c h sh bat exe dll so zip gz tar rar png jpg jpeg gif svg bmp mp3 mp4 wav flac ogg
    avi mkv mov md rst log ini cfg toml onnx pt pth safetensors ipynb sql db bin iso dmg apk php rb kt
    swift scss jsx tsx lua lock""")
