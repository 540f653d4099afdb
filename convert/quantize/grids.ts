/**
 * The grids of the IQ formats, in the encoding of rust-kernels/src/formats/grids.rs. A grid is a list of points with eight
 * or four values each. A point is a 16-bit number: 2 bits for each of eight values, or 4 bits for each of four. The first
 * value is in the lowest bits. A test compares the texts below with the kernels' texts.
 */

/** The points of each grid as text: the difference between each point and the one before. `pointsOf` decodes it. */
export const GRID_TEXTS = {
  IQ1:
    "#%&&%*'.%)%>/&%2>%)%..%)%aA$/&%&$.?(&,&(*&%%@/&%2aB%)%..%)%>/+.(:%)%*''*%)%e_&%2?+/(-$O+/aC&$$2&%2:(" +
    "()$&$$&*%&&%:3'&%*&$$&aR(K&/%&&+$(&?/&(e_%)%..%)%>/(2>%)%..%)%aB/&(.$?2$'/&(K&%&/aB%)%..%)%>/++'>%&&" +
    "%..%)%w%$&(.$?&/(&,&$'K&%.'aC&%&*%&&,&(?()$$%$$&*(B1&/&aT&%2>)&,&&%-%B/&%2eS(&.$&$+(>'$%%*&$$&,&&?(*" +
    "'$&$$*&$'a@&(*&$$&*%&&%:&$$.$%$$&$*&$$&:%%$&%)$&$$&$)%&aC&$$2$%%*(=%%$&%*'$%$+&$&$$?'+&2(f#(2?&%&*(&" +
    "%)$&%&?/&4aR%&(*'@%$&,&$$&$)((B+$&&,(&aG01%A%&*%&&,(&?/('w%%)%..%&&%>/++'>%)%..%&&%aB/&(/@%(/&%*&$$B" +
    ".)&/aC*%*'.%)%>/(&/?*%*'.%)%eR2%&/B$$&,&&%/B/&(+'aK//+:(&,&$',&&D*'$&%*&%&aC.%*/?+/.$+>%--e^%)%..%)%" +
    ">/&4>%)%9%)%aF+&(/D&,&/&%&?.)&.$aB%)%9%)%>/(&/>%)%..%)%b}*/(2G,&&%*&%Q(+(aA$&%&,&$%%*(&?&%*&$$&$.&%:" +
    "&%-%&.$$aJ/&%2?4&(-(C.4eS7'3?&%*&$$.$&&%:(&*%&.$+a?$&(*&$$&*((:&$$&*$&$$%$+&$$&<%$&,&$$&$.&%a>''.$&%" +
    "*&(:%&&+$$&$&,&&<'(-$/&%eV/'(.@**(&,&%&?/&%&/aC'$')'$&,&%=((*$%$$&*%&$'?&,&$%,&%&aTQ%&/&%-(N4vW&$$&," +
    "&(*&(:(&,&$$&/&A&/&+$(&aC&$$*&$$%$*($%%:&$$&*$$%$$%$$*&$$&<&/&$$&*((a>(/&(*&A&(*&$$&,&C.%&'$-eW$/&$$" +
    "%$+'&%:&$$&$)$&$$%$$*$%$$&:+%*&$$&+&$(a>$%$$&*$$%$$&$*&$$&:$$%$$%$*$$%$$%$$)$&$$%$$:&$'$)$&$$%$+&$$&" +
    "a>$$%%%$+&$&$*$$%$$%$;'$%$$)$$%$$%$$*&$'<&$%$$*'(+&$%$eR$$&*(&,,>&%*&$$%$*%%$@**%&&,+a?$&(*&$$&/?&$$" +
    "&*$$%$$%$$*&$$&;''+&$$%$/aF'0()($&?&$+'$%$,&&%:,+&$%%*w#2%&/B/($%%*&%&;82aC&%&,&/$'&?'+'$&/$'=)+&/(&" +
    "aO(&J$(2$%+H/(2f'$&$'*(&:%&&%*&$$&$)%&B$'*%%$$%%*&(aC&%*'$&N$$&*$&$$&+&$$&@&$*'$&$+&$%aA*/.)%$:(&%*&" +
    "$$%%)(&;%&(-%%$*'%'f'&/?4&(*+?/*1aB&/(/&%&:$'$%,&$$&*((;%)./&$'aO(%L&(*(&%-$'@1'%/b})%)%9%)%>.$&%&/>" +
    "%)%..%)%aB/&%&/?&(*%&$%$.%&?'.%&/aB%)%..%)%J&(/>%)%..%)%f%(K&0'(*&(N(aO+,&(/&:$'&,&$$&$.$%%:&%&*%&&1" +
    "aR(&/?&($)('$*('>/,-eS%)%..%)%:'/&(/':%)%..%)%aB$.&%2?&%&*%&(*&D4&/aB%)%..%)%>/&%M%)%..%)%vV/(%$/?(&" +
    "/&%2$>/&%&/aC&%&*(&%*&%&:(.$&$$&,&B%/&&,&%&aC/&(/B%&*%&&1&?2%6eO&%-(&1=-*&$$%$*$$&B%/%$&,+a>(&%)$&$$" +
    "&+''$:&$$&*$$%$$%$$*&$$&;'&,$%$$&$)%&&%a>&/('*)&?&$+$&$&/&=%($+%$2%&eS4&/?(-%&$'-$C/(&/aF%&*%&&%)$&%" +
    "=%&&%*&$$&,&$':&/%&(*(aF33B%&*(&,G/&$$w)%)%..%)%>/&%&J%)%..%)%aB'+&%&$O&+'&%*&D.%'&aP)%),,)%>/(&/>%)" +
    "%..%)%f*/?&/'$&%*'$%$?b,&*%&&1&<&/&$$&/(:&$$&,&&aT/('*'B%'+&$%+%G-($&+&%eQ%)%9%)%J&%&J%)%..%)%aB2(+'" +
    "?2((*(&J)aQ%)%9%)%J&%M%)%..%)%",
  IQ2_XXS:
    "#%&&%*&/%)%:&/+,&?%+;aF&/(Na+7aO%CaGf:&/4&?%);D&/7aC%);IF:4b#*Sa+CeS(&/7<&/%Yb'a#c15y4&/4BCG/(aR+;S-" +
    "IbODg:+;(GZbCa1bI9h.&/Sa(b*(bFb]x2%+^@B%bRBc'%hB&/S9bUa(Fe#f3;a[g/b~P&/+,&?+1-D&/aWCa(B(b'2[15fS+;aG" +
    "<b$5cKhD&/S(c*a?,Dc2a2w/+,+*aG+b'a%aIc]hB%b#d*a:g+4+a2cKc7yC/SKbCa<c2a/f[(d>%aYkMch5%+Za(b-7Kc@h3&/(" +
    "NCbKa-a5a]ZCf^d5d@y:/7?aHa]aQc4g:EEd@mGbJ}9a5Xb/d*h[r#c#",
  IQ2_XS:
    "#%&&%*&%&*%&&<&%&*%&&,&?%&&,&(*aH&%&*%&&%*&?%&&,&/+<&/aW%&&,&/D&/(N-f2&%&*%&&,&?%&&,&%-D&/aW%&&,&/D&" +
    "/4Bb,&/9=%a)f7%&&%*&/(?&/+KC-a>&/Sa(+a_C+aU-v]&%&*%&&,&?%&&,&/-:&/aW%&&,&/D&/S7%aR&%-SCf[%&&,&/D&(*7" +
    "?b,&/Sc/7Xg7&/%Q7Ub%(aHcZa?vR%&&%*&/D&/SCaH&/S+@bFEaEKeP&/<:c/a(4a.aO<b7eQ+%9XV=c5Kb#;aI)%b}F&%&*%&&" +
    ",&?%&&%*&/(?&/aW%&&,&/D&/S(@aF&/%::g?%&&,&(*D&/S7aT&/7?aAaM-^/g0&/S(21bI4V/<bFyC%&&,&/+<&/Sb,&/(N%c-" +
    "a+aMeN&/4BCDCaF+b#+bDa.]eV7P2a0b,I%e:w;&/S71GFa>dWIa/f)9d-S(aFj(aPc*cPa51b~1%&&,&/-:&/S%I%a>&%-S4+bR" +
    "CaG%A+eP&/%&NCLa_a+aHaZa9fQ+@XI%IaEdOaE+15vT&/S9Qb'Ea)d%Vf2(a&/+c@aN%bZhSa<bNc;a2x#%)%9-a^b]+a4aA%)E" +
    "a=Cf[a<gOVf-9%)b#+aCb+%bM%aN<",
  IQ2_S:
    "#%&&%*&%&*%&&<&%&*%&&,&%&:%&&,&/((a>&%&*%&&,&?%&&,&%&*(&<&/%&/&aC%&&,&/-:&%&*(N((-1eV&%&*%&&,&%&:%&&" +
    "%*&%&*%&?&%&*(&,&aC%&&%*&%&*(&<&%&*%&&,&?%&&,&/aH&%&*(N(&,&/D&/f+%&&,&%&*((:&%&*%&&,&?(29a>&/%&&,B(&" +
    ",&/D2aW4&1)%Ia0w'&%&*%&&,&%=%&&,&%&*%&&<&%-(&,&aC%&&%*&%&*%&&<&%&*%&&,&?%&&,&aT&(*(/&?(/&P&/f+%&&,&%" +
    "&*(&<&%&*%&&,&?%&&,&/aH&%&*%&&,&?%&&,&/D&/aW(&,&/D&/SMeN&%&*(&,B%&&,&/D&b'%&&,&/D&/<]aI/S9x-%&&,&%&*" +
    "((:&/%&2?--9a>&/%&/B%&/&/D&/aW-;)%=/[%AeP&%&*(&,&?%&&,&/D&/aW(&,&/D&/9=b,&/S<g&(/&P&/^Ca>&/b0a];a)G%" +
    "b}F&%&*%&&%*&%=%&&%*&%&*%&?&/(&,&aC%&&,&%&*%&?&%&*%&&,&?%&&,&/aH&/%&&/?(&,&/D&f7%&&%*&%&*%&&<&%&*%&&" +
    ",&?%&&,&/aH&%&*%&&,&?%&&,&/-:&/aW%&&,&/D&/SHeS&(*%&&,&?%&&,&/G/aW%&&,&/D&/S9aR&/SxC%&&,&%&*%&&<&%&*%" +
    "&&,&?%&&,&aT&%&*%&&,&?%&&,&/D&/aW(&,&/D&/<:f<&%&*%&&,&?%&&,&/D&/aW%&&,&/D&/Sb,&/9=g?%&&,&/D&/-Ib,&/S" +
    "c/<aSFvT&%-%&&,&?(&,&/G/aW%&&,&/D&/S<aR/S9a2eV(&,&/D&/Sb,&/S-AMaUb?f(&/a<VaOMdKaFb}.%&&,&(*(?&/%&&,B" +
    "(/&aT&(*%&&,&?%&&,&P&/<a>((*&P&/g0&%&*%&&,B%&&,&/D&/aW%&&,&/D&/S-a_&/<:g?(/&P&/a9aF&a#Hc,Y%KCvZ&(*%&" +
    "&/?%&&,&/D&/aW(/&P&/-bR&/SaMeQ%&&,&/D&/S9aR&/Sa?,aFa-AfX&/9=aPa>a0,e5w/((-1+:&/a9+bAHbH+;)%a?)%AeP&/" +
    "Sa0>aC<e/g8Ab%b^Ub-%9%)aGE",
  IQ3_XXS:
    "#%%0%',%24T%b7%0%2'.%26?b;%%02%2%'=)Ab7),%6a2bNG06?%b7)NCcRRbW'%PAaeS%0%2%0%%6,b[%22%cN%0%22a)b9%A48" +
    "CbF'a2c?'ENb?dPAaf7%2%0%'.4c.%%.%22V',b;%2),%8,8bW2'aC'c0Ab[G=VfH%6Raf32%2%P80b9%A46%c*%08PCbJEd0:Nb" +
    "9)?Vc.EPc?PaeW6A%?'dPbW:,C)bLa%c.a46c0APfP.%AafYRRb;)CRc.Aa'b;a8c,6'a2b;RdRcCAafYC%Ac,a'c%a4c;)dAc0a" +
    "4cPc?AafY%%,ECcC=cAV0bY8APc0Cc.%Ed?",
  IQ3_S:
    "#$$&%,$$%%-$'10%&%-%0%2&&b4$$%/$'.&'-'2@'0b9$'%,&&.'.'1&%-%@&b;1'.%2%&1/%8-'b66'-&11&1Bb=%?%'01'%B0b" +
    ">.%ADBb:%%?%'0@'af#$$%/$%%%,%2&%A%.4b9$%&-'02&12%A)b55&%,'11&5.5b:&&,&1),'0D1b>%0%@%2'-'bX2&12%Bc>'&" +
    "@%c*%0%27/D1aeC$%%%,%%%.%',%2%%.%8,&%b6%1&'.&/&12b[&&=%0*-5'=&b7%&/4%0%219bF)<&2&/T&b:048,6@b;%(=W/b" +
    "O/8-60af)2%%%.2%%0%&-51b;%%20%@C5'b5515%?b]2'0%',4%'1Ab;1(/2D1'bH2%6055@bNNc/%@%6afB'11'&.22Cb=(-%21" +
    "(11'bW%0(/50:.1b?0%0%2'c:%E6,Tb?%=a(b]DOb[(>61af(1'1A'&.71b8%%024a'b9450)@bZ(,:@071b9&?57c;7N%c_c/%A" +
    "ag*%%?%PbKC*a$bYE1601b;70BcTABbI&TObP_c@%ag('&<%7-71bK26B%c+&/).2Db]S&AbY'10ScACc/Rc>",
} as const;

/**
 * Returns a grid's points, ascending. Each character is a digit from 0 to 90: the characters from `#` on, without the
 * backslash. Digits from 60 on lead: minus 60 they are digits of a number in base 31. A digit below 60 ends the
 * difference between two points: 60 * that number + the digit.
 */
export function pointsOf(grid: keyof typeof GRID_TEXTS): Uint16Array {
  const points: number[] = [];
  let [point, high] = [0, 0];
  for (const character of GRID_TEXTS[grid]) {
    const digit = character.charCodeAt(0) - 35 - Number(character > "\\");
    if (digit >= 60) {
      high = 31 * high + digit - 60;
      continue;
    }
    point += 60 * high + digit;
    high = 0;
    points.push(point);
  }
  return Uint16Array.from(points);
}
